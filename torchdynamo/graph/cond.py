"""Turn the captured sides of `torch.cond` into two bodies and one operator that runs either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchdynamo.graph.errors import UnsupportedOperator
from torchdynamo.graph.passes.enclose import body

if TYPE_CHECKING:
    from torchdynamo.core.source import Position
    from torchdynamo.graph.build import GraphBuilder

Node = torch.fx.Node
COND = torch.ops.higher_order.cond


def choose(
    builder: GraphBuilder,
    condition: Any,
    sides: Sequence[tuple[list[Node], list[Node]]],
    position: Position | None,
) -> tuple[Node, Any]:
    """Replace the sides, which are the last nodes of the graph, by a `cond` operator.

    sides: for each side its nodes and its results among them. Raises UnsupportedOperator for sides that cond rejects.
    """
    for nodes, results in sides:
        check(nodes, results)
    inputs = list(dict.fromkeys(each for nodes, _ in sides for each in outside(nodes)))
    if not all(isinstance(node.meta["example_value"], (torch.Tensor, torch.SymInt)) for node in inputs):
        raise UnsupportedOperator("cond", "a side takes what is neither a tensor nor a size")
    holders = [builder.hold("side", body(builder.root(), nodes, inputs, results), position) for nodes, results in sides]
    for nodes, _ in reversed(sides):
        for node in reversed(nodes):
            builder.graph.erase_node(node)
    return builder.call("call_function", COND, (condition, *holders, inputs), {}, position)


def check(nodes: list[Node], results: list[Node]) -> None:
    """Raise UnsupportedOperator if a side returns its input, a view of it, or one memory twice."""
    inside = set(nodes)
    if not all(node in inside for node in results):
        raise UnsupportedOperator("cond", "a side returns what it was given")
    memory = {storage(node) for node in outside(nodes)}
    if any(storage(node) in memory for node in results) or len({storage(node) for node in results}) < len(results):
        raise UnsupportedOperator("cond", "a side returns views of what it was given, or two of one tensor")


def storage(node: Node) -> Any:
    """Return a key of the storage of a node's tensor; the node itself if it is no tensor."""
    example = node.meta["example_value"]
    return example.untyped_storage()._cdata if isinstance(example, torch.Tensor) else node


def outside(nodes: list[Node]) -> list[Node]:
    """Return the nodes outside of this list that it uses."""
    inside = set(nodes)
    return [each for node in nodes for each in node.all_input_nodes if each not in inside]

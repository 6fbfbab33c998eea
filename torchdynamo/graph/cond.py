"""Both sides of `torch.cond`: what was followed in place becomes two bodies, and one operator that runs either."""

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
    """Make a conditional operator of two sides: nodes, which are at the end of the graph, and its results
    among them.
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
    """Check that a branch returns tensors that are its own."""
    inside = set(nodes)
    if not all(node in inside for node in results):
        raise UnsupportedOperator("cond", "a side returns what it was given")
    memory = {storage(node) for node in outside(nodes)}
    if any(storage(node) in memory for node in results) or len({storage(node) for node in results}) < len(results):
        raise UnsupportedOperator("cond", "a side returns views of what it was given, or two of one tensor")


def storage(node: Node) -> Any:
    """Return what a node's tensor lies in."""
    example = node.meta["example_value"]
    return example.untyped_storage()._cdata if isinstance(example, torch.Tensor) else node


def outside(nodes: list[Node]) -> list[Node]:
    """Return what these nodes take from before them."""
    inside = set(nodes)
    return [each for node in nodes for each in node.all_input_nodes if each not in inside]

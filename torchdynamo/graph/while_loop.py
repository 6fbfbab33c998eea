"""Turn the captured condition and body of a loop into bodies of torch's `while_loop` operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchdynamo.graph.cond import check, outside
from torchdynamo.graph.errors import UnsupportedOperator
from torchdynamo.graph.passes.enclose import body

if TYPE_CHECKING:
    from torchdynamo.core.source import Position
    from torchdynamo.graph.build import GraphBuilder

Node = torch.fx.Node


def repeat(
    builder: GraphBuilder,
    carried: Sequence[Node],
    standing: Sequence[Node],
    parts: Sequence[tuple[list[Node], list[Node]]],
    position: Position | None,
) -> tuple[Node, Any]:
    """Replace the condition and the body, the last nodes of the graph, by a `while_loop` operator.

    carried: initial values. standing: nodes that stand for the carried values in the parts. parts: (nodes, results) of
    the condition and of the body. Raises UnsupportedOperator.
    """
    for nodes, results in parts:
        check(nodes, results)
    own = dict.fromkeys(standing)
    more = list(dict.fromkeys(each for nodes, _ in parts for each in outside(nodes) if each not in own))
    if not all(isinstance(node.meta["example_value"], torch.Tensor) for node in more):
        raise UnsupportedOperator("while_loop", "it takes what is no tensor")
    inputs = [*standing, *more]
    graphs = [body(builder.root(), nodes, inputs, results) for nodes, results in parts]
    only_result(graphs[0])
    holders = [builder.hold("turn", each, position) for each in graphs]
    for nodes in (parts[1][0], parts[0][0], list(standing)):
        for node in reversed(nodes):
            builder.graph.erase_node(node)
    loop = torch.ops.higher_order.while_loop
    first = list(carried)
    for at, node in enumerate(first):
        if node in more:  # the operator takes no tensor twice
            first[at], _ = builder.call("call_method", "clone", (node,), {}, position)
    return builder.call("call_function", loop, (*holders, tuple(first), tuple(more)), {}, position)


def only_result(gm: torch.fx.GraphModule) -> None:
    """Make a body return its one result itself, not a tuple of it."""
    (output,) = gm.graph.find_nodes(op="output")
    output.args = output.args[0]
    output.meta["example_value"] = output.meta["example_value"][0]
    gm.recompile()

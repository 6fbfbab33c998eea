"""Turn the captured score and mask functions of `flex_attention` into bodies of one operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from torchdynamo.graph.cond import outside
from torchdynamo.graph.errors import UnsupportedOperator
from torchdynamo.graph.passes.enclose import body
from torchdynamo.graph.while_loop import only_result

if TYPE_CHECKING:
    from torchdynamo.core.source import Position
    from torchdynamo.graph.build import GraphBuilder

Node = torch.fx.Node


Part = tuple[list[Node], list[Node], Node]
"""A function captured at the end of the graph: nodes of its arguments, its own nodes, and its result."""


def attend(
    builder: GraphBuilder,
    tensors: Sequence[Node],
    score: Part,
    mask: Part,
    blocks: Sequence[Any],
    settings: Sequence[Any],
    position: Position | None,
) -> tuple[Node, Any]:
    """Add a `flex_attention` operator and erase the nodes of its functions. Raises UnsupportedOperator.

    tensors: query, key and value. blocks: the block mask's arguments before its function. settings: scale and options.
    """
    holders, brought = [], []
    for standing, nodes, result in (score, mask):
        own = {*standing, *nodes}
        more = list(dict.fromkeys(each for each in (*outside(nodes), result) if each not in own))
        if not all(isinstance(node.meta["example_value"], (torch.Tensor, torch.SymInt)) for node in more):
            raise UnsupportedOperator("flex_attention", "a score takes what is neither a tensor nor a size")
        made = body(builder.root(), nodes, [*standing, *more], [result])
        only_result(made)
        holders.append(builder.hold("score", made, position))
        brought.append(tuple(more))
    for standing, nodes, _ in (mask, score):
        for node in reversed([*standing, *nodes]):
            builder.graph.erase_node(node)
    args = (*tensors, holders[0], (*blocks, holders[1]), *settings, *brought)
    return builder.call("call_function", torch.ops.higher_order.flex_attention, args, {}, position)

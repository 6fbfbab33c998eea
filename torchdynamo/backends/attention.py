"""Keep Inductor from replacing code that only resembles attention by `scaled_dot_product_attention`.

Inductor's patterns (torch/_inductor/fx_passes/fuse_attention.py) were traced beforehand and ignore numbers: the
dimension of the softmax, how queries, keys and values are permuted, and the value that a mask fills in. Code that
differs in one of these is replaced too, with wrong results and gradients. Every pattern contains a maximum that keeps
its dimension. So where two matrix products with a softmax between them are not attention, this pass lets the maximum
drop its dimension and restores it by `unsqueeze`: the numbers are equal, and no pattern matches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

aten = torch.ops.aten
prims = torch.ops.prims
Node = torch.fx.Node

SWAPPED = (0, 1, 3, 2)  # the last two dimensions of the keys
HEADS_FIRST = (0, 2, 1, 3)
SHAPING = {aten.view.default, aten.expand.default, aten.clone.default, aten.unsqueeze.default, aten.reshape.default}
SCORING = {aten.div.Tensor, aten.mul.Tensor, aten.add.Tensor, aten.where.self, prims.convert_element_type.default}
LEAST_FILL = -1e4  # a mask fills in this or less, so that softmax gives the position no weight


def keep_apart(graph: torch.fx.Graph) -> None:
    """Rewrite each softmax between two matrix products of an ATen graph that is not attention, so that no pattern
    matches it.
    """
    for node in graph.find_nodes(op="call_function", target=aten.amax.default):
        scores = product_before(node.args[0])
        if len(node.args) == 3 and node.args[2] and scores is not None and not is_attention(node, scores):
            drop_dimension(graph, node)


def is_attention(maximum: Node, scores: Node) -> bool:
    """Return whether the softmax with this maximum is the softmax of attention, as every pattern assumes."""
    tensor, dims = maximum.args[:2]
    assert isinstance(tensor, Node)
    rank = tensor.meta["val"].dim()
    if not is_over_the_last(dims, rank) or not all(is_mask_fill(each) for each in fills(tensor)):
        return False
    queries, keys = (permutations(each) for each in scores.args[:2])
    if rank == 3:
        return all(each == (0, 2, 1) for each in keys[:1])
    if keys[:1] != [SWAPPED]:
        return not keys  # no pattern matches keys that are permuted in another way
    product = product_after(maximum)
    heads = [queries[:1], keys[1:2], permutations(product.args[1])[:1] if product is not None else []]
    return not all(heads) or all(each == [HEADS_FIRST] for each in heads)


def is_over_the_last(dims: Any, rank: int) -> bool:
    """Return whether a reduction is over the last dimension only."""
    return isinstance(dims, (list, tuple)) and len(dims) == 1 and dims[0] % rank == rank - 1


def permutations(value: Any) -> list[tuple[int, ...]]:
    """Return the permutations applied to a factor of a matrix product, the last one first."""
    found: list[tuple[int, ...]] = []
    while isinstance(value, Node) and (value.target in SHAPING or value.target is aten.permute.default):
        if value.target is aten.permute.default:
            rank = len(value.args[1])  # type: ignore[arg-type]
            found.append(tuple(dim % rank for dim in value.args[1]))  # type: ignore[union-attr, operator, misc]
        value = value.args[0]
    return found


def product_before(value: Any) -> Node | None:
    """Return the batched matrix product that attention scores were computed from; None if there is none."""
    while isinstance(value, Node) and value.target is not aten.bmm.default:
        if value.target is aten.where.self:
            value = next((each for each in value.args[1:] if is_score(each)), None)
        else:
            value = value.args[0] if value.target in SHAPING | SCORING else None
    return value if isinstance(value, Node) else None


CONSTANTS = {aten.full.default: 1, aten.scalar_tensor.default: 0}  # operator -> position of the fill value


def is_score(value: Any) -> bool:
    """Return whether a node is a computed score rather than a constant that a mask fills in."""
    return isinstance(value, Node) and value.target not in CONSTANTS and value.op != "placeholder"


def fills(value: Any) -> Iterator[Any]:
    """Yield the constants that masks fill in between the scores and their softmax."""
    while isinstance(value, Node) and value.target in SHAPING | SCORING:
        if value.target is not aten.where.self:
            value = value.args[0]
            continue
        for each in value.args[1:]:
            if isinstance(each, Node) and each.target in CONSTANTS:
                yield each.args[CONSTANTS[each.target]]
        value = next((each for each in value.args[1:] if is_score(each)), None)


def is_mask_fill(value: Any) -> bool:
    """Return whether a fill value gives masked positions no weight in a softmax."""
    return isinstance(value, (int, float)) and value <= LEAST_FILL


def product_after(maximum: Node) -> Node | None:
    """Return the first product whose first factor is the softmax with this maximum; None if there is none. A backward
    multiplies it as the second factor.
    """
    derived, node = {maximum}, maximum.next
    while node.op != "output":
        if not derived.isdisjoint(node.all_input_nodes):
            if node.target is not aten.bmm.default:
                derived.add(node)
            elif node.args[0] in derived:
                return node
        node = node.next
    return None


def drop_dimension(graph: torch.fx.Graph, node: Node) -> None:
    """Rewrite a maximum that keeps its dimensions into one that drops them, followed by `unsqueeze`."""
    tensor, dims = node.args[:2]
    shape = node.meta["val"].shape
    with graph.inserting_before(node):
        dropped = graph.call_function(aten.amax.default, (tensor, dims))
        dropped.meta = {**node.meta, "val": node.meta["val"].squeeze(dims)}
        back = dropped
        for dim in sorted(each % len(shape) for each in dims):  # type: ignore[union-attr, operator]
            value = back.meta["val"].unsqueeze(dim)
            back = graph.call_function(aten.unsqueeze.default, (back, dim))
            back.meta = {**node.meta, "val": value}
    node.replace_all_uses_with(back)
    graph.erase_node(node)

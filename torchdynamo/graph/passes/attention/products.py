"""Read products of matrices: which operand gives rows, which gives columns, and how each lies."""

from __future__ import annotations

import string
from typing import Any

import torch.fx

from torchdynamo.graph.passes.attention.calls import NamedCall, example
from torchdynamo.graph.passes.attention.form import Miss, Operand, Product

Node = torch.fx.Node
NAMES = frozenset({"matmul", "baddbmm", "einsum"})


def scores_of(call: NamedCall, node: Node) -> Product:
    """Return the product that scores come from, with the keys as [..., keys, embedding]. Raises Miss."""
    if call.name != "einsum":
        query, keys = call["input"], call["other"]
        rank = example(keys).dim()
        if rank < 2 or example(query).dim() < 2:
            raise Miss("a product of vectors", node)
        return Product(Operand(query), Operand(keys, (*range(rank - 2), rank - 1, rank - 2)))
    (first, one), (second, two), out = equation_of(call, node)
    *batch, rows, columns = tuple(out)
    if columns in one:
        (first, one), (second, two) = (second, two), (first, one)
    inner = (set(one) & set(two)) - set(out)
    if len(inner) != 1 or rows in two or columns in one or rows not in one or columns not in two:
        raise Miss(f"an einsum of another kind: {call['equation']}", node)
    (each,) = inner
    return Product(
        arranged(first, one, (*batch, rows, each), node), arranged(second, two, (*batch, columns, each), node)
    )


def mixed(call: NamedCall, node: Node, weights: Node) -> Product:
    """Return the product of weights and values. Raises Miss for one in which the weights play another part."""
    if call.name != "einsum":
        if call["input"] is not weights or call["other"] is weights or example(call["other"]).dim() < 2:
            raise Miss("the weights are not the first factor of the second product", node)
        return Product(Operand(weights), Operand(call["other"]))
    (first, one), (second, two), out = equation_of(call, node)
    if second is weights:
        (first, one), (second, two) = (second, two), (first, one)
    *batch, rows, keys = tuple(one)
    columns = set(two) - set(one)
    if first is not weights or second is weights or keys in out or len(columns) != 1 or rows in two:
        raise Miss(f"an einsum of another kind: {call['equation']}", node)
    order = (*batch, rows, *columns)
    if sorted(order) != sorted(out):
        raise Miss(f"an einsum of another kind: {call['equation']}", node)
    permuted = tuple(order.index(each) for each in out)
    value = arranged(second, two, (*batch, keys, *columns), node)
    return Product(Operand(weights), value, None if permuted == tuple(range(len(order))) else permuted)


def equation_of(call: NamedCall, node: Node) -> tuple[tuple[Node, str], tuple[Node, str], str]:
    """Return the operands of an einsum with their letters, and those of the result. Raises Miss for other than two."""
    text, operands = call["equation"], call["operands"]
    if not isinstance(text, str) or "->" not in text or len(operands) != 2:
        raise Miss("an einsum of another kind", node)
    terms, _, out = text.replace(" ", "").partition("->")
    parts = terms.split(",")
    free = [each for each in string.ascii_letters if each not in text]
    rests = {
        example(operand).dim() - len(part) + 3 for operand, part in zip(operands, parts, strict=True) if "." in part
    }
    if len(rests) > 1:
        raise Miss("an einsum of another kind", node)
    rest = "".join(free[: rests.pop()]) if rests else ""
    one, two, out = (each.replace("...", rest) for each in (*parts, out))
    if any(len(set(each)) != len(each) for each in (one, two, out)) or len(out) < 2:
        raise Miss("an einsum of another kind", node)
    return (operands[0], one), (operands[1], two), out


def arranged(operand: Node, letters: str, wanted: tuple[str, ...], node: Node) -> Operand:
    """Return an operand with its dimensions as wanted; letters that it lacks become dimensions of size 1."""
    if set(letters) - set(wanted):
        raise Miss("an einsum of another kind", node)
    return Operand(operand, tuple(letters.index(each) if each in letters else None for each in wanted))


def sizes(node: Any) -> tuple[Any, ...]:
    """Return the sizes of a node's tensor."""
    return tuple(example(node).shape)


def same(one: tuple[Any, ...], two: tuple[Any, ...]) -> bool:
    """Return whether sizes are equal, without a guard on those that vary."""
    return len(one) == len(two) and all(
        left == right if type(left) is type(right) is int else str(left) == str(right)
        for left, right in zip(one, two, strict=True)
    )

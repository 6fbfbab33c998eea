"""Write the mask of `scaled_dot_product_attention`, and repair rows all of whose keys are masked.

Kernels give zero for such a row where a softmax gives NaN or the mean of all values, and some give NaN for all
gradients. So no row of the mask is without keys, and what the row should give is put in its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.fx

from torchdynamo.graph.passes.attention.calls import example
from torchdynamo.graph.passes.attention.form import Attention, Bias, Fill
from torchdynamo.graph.passes.attention.level_rows import level_rows
from torchdynamo.graph.passes.attention.lower import ABSORBING, MEAN, NAN, ZERO, Arguments
from torchdynamo.graph.passes.attention.writer import NodeWriter

Node = torch.fx.Node
DOUBLE = 2.0**29
"""How much larger a number has to be in double precision to absorb what is added to it."""


class Heads(NamedTuple):
    """The operator's arguments that repairs need: queries, keys and values of four dimensions, and the scale."""

    query: Node
    keys: Node
    value: Node
    scale: float


Repair = Callable[[NodeWriter, Node, Node, Heads], Node]
"""Gets the writer, a result, its rows that stay, and what it is of; returns it with its other rows repaired."""


class Masks(NamedTuple):
    """The operator's mask, if any, and the repairs of its result, each with the rows that stay."""

    mask: Node | None
    repairs: Sequence[tuple[Repair, Node]]


def masks_of(found: Attention, arguments: Arguments, write: NodeWriter, dtype: torch.dtype) -> Masks:
    """Return the operator's mask and the repairs of its result."""
    keep = kept_keys(arguments.fills, found, write)
    bias = sum_of(arguments.biases, found, write)
    repairs: list[tuple[Repair, Node]] = []
    value = arguments.fills[0].value if arguments.fills else -math.inf
    kept, filled_in = keep, math.isfinite(value)
    some = None
    if keep is not None and arguments.rows:
        some = write.call(torch.any, keep, -1, True)
        repairs.append((ROWS[arguments.rows], some))
        if bias is None or not filled_in:
            kept = write.call(torch.logical_or, keep, write.call(torch.logical_not, some))
    if bias is None:
        return Masks(kept, repairs)
    if arguments.absorbs:
        most = write.call(torch.amax, bias, -1, True)
        low = ABSORBING * (DOUBLE if example(bias).dtype == torch.float64 else 1.0)
        absorbed = write.call(torch.logical_and, write.call(torch.le, most, low), write.call(torch.gt, most, -math.inf))
        if not arguments.even:
            even = write.call(torch.eq, write.call(torch.amin, bias, -1, True), most)
            uneven = write.call(torch.logical_and, absorbed, write.call(torch.logical_not, even))
            apart = write.call(torch.where, write.call(torch.lt, bias, most), -3e38, -1e30)
            bias = write.call(torch.where, uneven, apart, bias)
            absorbed = write.call(torch.logical_and, absorbed, even)
        repairs.append((level, write.call(torch.logical_not, absorbed)))
        bias = write.call(torch.where, absorbed, 0.0, bias)
    if arguments.infinite:
        there = write.call(torch.gt, bias, -math.inf)
        if keep is not None and filled_in:
            there = write.call(torch.logical_or, there, write.call(torch.logical_not, keep))
        elif keep is not None:
            there = write.call(torch.logical_and, there, keep)
        there = write.call(torch.any, there, -1, True)
        if some is not None and not filled_in:
            there = write.call(torch.logical_or, there, write.call(torch.logical_not, some))
        repairs.append((zero if arguments.rows == ZERO and not filled_in else spoil, there))
    least = max(torch.finfo(dtype).min, torch.finfo(example(bias).dtype).min)
    if example(bias).dtype != dtype or (arguments.infinite and not filled_in):
        bias = write.call(torch.clamp, bias, min=least)
    bias = write.of_dtype(bias, dtype, exact=False)
    if kept is not None:
        bias = write.call(torch.where, kept, bias, max(value, least) if filled_in else value)
    return Masks(bias, repairs)


def kept_keys(fills: Sequence[Fill], found: Attention, write: NodeWriter) -> Node | None:
    """Return which keys all masks keep; None if there is no mask."""
    keep = None
    for fill in fills:
        mask = write.in_four(fill.mask, fill.lead, found.lead)
        mask = mask if fill.keeps else write.call(torch.logical_not, mask)
        keep = mask if keep is None else write.call(torch.logical_and, keep, mask)
    return keep


def sum_of(biases: Sequence[Bias], found: Attention, write: NodeWriter) -> Node | None:
    """Return the sum of biases; None if there is none."""
    bias = None
    for each in biases:
        added = write.in_four(each.tensor, each.lead, found.lead)
        if not example(added).is_floating_point():
            added = write.call(torch.Tensor.to, added, example(found.scores).dtype)
        if each.factor != 1:
            added = write.call(torch.mul, added, each.factor)
        bias = added if bias is None else write.call(torch.add, bias, added)
    if bias is not None and example(bias).requires_grad and not example(found.result).requires_grad:
        return write.call(torch.Tensor.detach, bias)  # kernels look at the flag alone
    return bias


def blank(write: NodeWriter, result: Node, some: Node, heads: Heads) -> Node:
    """Make rows NaN, and the gradients of values: a softmax over -inf that masks have filled in."""
    factor = write.call(torch.where, some, 1.0, math.nan)  # else NaN times the zero gradient of other rows was NaN
    factor = write.of_dtype(factor, example(result).dtype, exact=False)
    mean = write.call(torch.mean, heads.value, -2, True)
    return write.call(torch.where, some, result, write.call(torch.mul, mean, factor))


def spoil(write: NodeWriter, result: Node, some: Node, _: Heads) -> Node:
    """Make rows NaN, and all gradients: a softmax over scores that are -inf by addition."""
    factor = write.call(torch.where, some, 1.0, math.nan)
    return write.call(torch.mul, result, write.of_dtype(factor, example(result).dtype, exact=False))


def average(write: NodeWriter, result: Node, some: Node, heads: Heads) -> Node:
    """Make rows the mean of all values: a softmax over equal scores."""
    return write.call(torch.where, some, result, write.call(torch.mean, heads.value, -2, True))


def level(write: NodeWriter, result: Node, some: Node, heads: Heads) -> Node:
    """Make rows the mean of all values, with the gradients of a softmax over scores that a sum has absorbed.

    A sum does not absorb NaN.
    """
    some = write.call(torch.logical_or, some, write.call(torch.isnan, result))
    if not any(example(each).requires_grad for each in (result, *heads[:3])):
        return average(write, result, some, heads)
    return write.call(level_rows, result, some, *heads)


def zero(write: NodeWriter, result: Node, some: Node, _: Heads) -> Node:
    """Make rows zero."""
    return write.call(torch.where, some, result, 0.0)


ROWS: dict[str, Repair] = {NAN: blank, MEAN: average, ZERO: zero}

"""Writes that operators refuse by where tensors lie in memory; fake tensors have none, and would let them pass.

A tensor that is expanded holds one element at several places, and may not be written to; nor may what is written lie
across what is read, as in `a[1:].add_(a[:-1])`. ATen's own checks say yes, no, or that it is too hard to tell, in which
case nothing is refused: so do these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

ANYWHERE = frozenset({torch.ops.aten.fill_.Scalar, torch.ops.aten.zero_.default})  # these write the same everywhere


def refuse(op: torch._ops.OpOverload, written: Iterable[Any], given: Iterable[Any]) -> None:
    """Raise as the operator would; others than those that check are stopped, too, and left to themselves."""
    if op in ANYWHERE or torch.Tag.inplace_view in op.tags:
        return
    places: dict[int, torch.Tensor] = {}
    for tensor in flat(written):
        if overlaps_itself(tensor):
            raise RuntimeError("unsupported operation: more than one element of the written-to tensor is one in memory")
        if tensor.layout is torch.strided:
            places[tensor.untyped_storage()._cdata] = tensor
    for tensor in flat(given):
        other = places.get(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else None
        if other is not None and other is not tensor and lie_across(other, tensor):
            raise RuntimeError("unsupported operation: the input tensor and the written-to tensor share some memory")


def flat(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Walk through the tensors among these, and in lists of them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from flat(value)


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Return whether an element is at several places for certain."""
    if tensor.layout is not torch.strided:
        return False
    steps = zip(tensor.stride(), tensor.shape, strict=True)
    return any(type(step) is int and step == 0 and (type(size) is not int or size > 1) for step, size in steps)


def lie_across(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors in the same memory share a part for certain, and are not at the same places."""
    numbers = (*a.shape, *b.shape, *a.stride(), *b.stride(), a.storage_offset(), b.storage_offset())
    if any(type(number) is not int for number in numbers) or not (a.numel() and b.numel()):
        return False
    if not (is_dense(a) and is_dense(b)):
        return False
    (low, high), (other_low, other_high) = extent(a), extent(b)
    if (low, high) == (other_low, other_high):
        return a.stride() != b.stride()
    return low < other_high and other_low < high


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether it fills its stretch of memory, in whatever order of dimensions."""
    expected = 1
    steps = zip(tensor.stride(), tensor.shape, strict=True)
    for step, size in sorted((step, size) for step, size in steps if size != 1):
        if step != expected:
            return False
        expected *= size
    return True


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return where it begins and ends, in bytes."""
    begin = int(tensor.storage_offset()) * tensor.itemsize
    return begin, begin + tensor.numel() * tensor.itemsize


def touch(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether the stretches of two tensors in the same memory have a part in common."""
    (low, high), (other_low, other_high) = stretch(a), stretch(b)
    return low < other_high and other_low < high


def stretch(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the same as its extent, of a tensor with gaps, too."""
    begin = int(tensor.storage_offset())
    last = begin + sum(step * (size - 1) for step, size in zip(tensor.stride(), tensor.shape, strict=True))
    return begin * tensor.itemsize, ((last + 1) if tensor.numel() else begin) * tensor.itemsize

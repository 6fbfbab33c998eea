"""Reject writes that operators reject because of overlapping memory; fake tensors would let them pass.

An expanded tensor holds one element at several positions and must not be written to; nor may a write overlap its
inputs, as in `a[1:].add_(a[:-1])`. ATen's own checks answer yes, no, or too hard, and too hard is allowed; these do the
same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from torchdynamo.graph.wrappers import is_wrapper

ANYWHERE = frozenset({torch.ops.aten.fill_.Scalar, torch.ops.aten.zero_.default})  # overlaps do not matter to these


def refuse(op: torch._ops.OpOverload, written: Iterable[Any], given: Iterable[Any]) -> None:
    """Raise RuntimeError for a write that the operator would reject, and for operators that do not check themselves:
    the graph ends there, and eager decides.
    """
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
        if other is not None and other is not tensor and overlap_partly(other, tensor):
            raise RuntimeError("unsupported operation: the input tensor and the written-to tensor share some memory")


def flat(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors among these values, and in lists of them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if not is_wrapper(value):  # whose operators write to the tensors inside
                yield value
        elif isinstance(value, (list, tuple)):
            yield from flat(value)


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Return whether elements of a tensor certainly share memory."""
    if tensor.layout is not torch.strided:
        return False
    steps = zip(tensor.stride(), tensor.shape, strict=True)
    return any(type(step) is int and step == 0 and (type(size) is not int or size > 1) for step, size in steps)


def overlap_partly(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors of one storage certainly overlap without being equal."""
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
    """Return whether a tensor fills its extent of memory without gaps, in any order of dimensions."""
    expected = 1
    steps = zip(tensor.stride(), tensor.shape, strict=True)
    for step, size in sorted((step, size) for step, size in steps if size != 1):
        if step != expected:
            return False
        expected *= size
    return True


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first byte of a dense tensor in its storage, and the byte after its last."""
    begin = int(tensor.storage_offset()) * tensor.itemsize
    return begin, begin + tensor.numel() * tensor.itemsize


def touch(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether the extents of two tensors of one storage intersect."""
    (low, high), (other_low, other_high) = stretch(a), stretch(b)
    return low < other_high and other_low < high


def stretch(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first byte of a tensor, which may have gaps, in its storage, and the byte after its last."""
    begin = int(tensor.storage_offset())
    last = begin + sum(step * (size - 1) for step, size in zip(tensor.stride(), tensor.shape, strict=True))
    return begin * tensor.itemsize, ((last + 1) if tensor.numel() else begin) * tensor.itemsize

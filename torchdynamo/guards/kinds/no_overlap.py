"""The first tensor, which a graph writes to, shares no memory with the others."""

from __future__ import annotations

from typing import Any

from torchdynamo.guards.kind import Kind


def span(tensor: Any) -> tuple[int, int]:
    """The bytes a tensor reaches."""
    begin = tensor.data_ptr()
    if tensor.numel() == 0:
        return begin, begin
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * tensor.element_size()


def holds(value: Any, arg: Any, roots: Any) -> bool:
    begin, end = span(value)
    others = [span(source.load(roots)) for source in arg[1:]]
    return not any(begin < other_end and other < end for other, other_end in others)


KIND = Kind(
    "NO_OVERLAP",
    holds=holds,
    lower=lambda guard, node_of: (node_of(guard.source), "apart", tuple(map(node_of, guard.arg))),
    tell=lambda value: "memory shared with another input",
)

"""What of some arguments can have another size: the dimensions, and the numbers, that go together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch


class Axis(NamedTuple):
    """What varies: a name, for each tensor among the inputs the dimensions that go with it, and whether ints do too."""

    name: str
    size: int
    dims: dict[int, tuple[int, ...]]
    ints: bool


def tensors(inputs: Any, found: list[torch.Tensor] | None = None) -> list[torch.Tensor]:
    """The tensors in the arguments, in order."""
    found = [] if found is None else found
    if isinstance(inputs, torch.Tensor):
        found.append(inputs)
    elif isinstance(inputs, dict):
        for value in inputs.values():
            tensors(value, found)
    elif isinstance(inputs, (list, tuple)):
        for value in inputs:
            tensors(value, found)
    return found


def axes(inputs: Any) -> Iterator[Axis]:
    """The batch, and each length of the first tensors that others may share; each with ever more going along."""
    given = tensors(inputs)
    ranked = [tensor for tensor in given if tensor.dim() > 0]
    if not ranked:
        return
    batch = ranked[0].shape[0]
    first = {i: (0,) for i, t in enumerate(given) if t.dim() > 0 and t.shape[0] == batch}
    for dims in (first, equal(given, batch, 0)):
        yield from (Axis("batch", batch, dims, ints) for ints in (False, True))
    for size in dict.fromkeys(length for tensor in ranked for length in reversed(tensor.shape[1:])):
        for start in (1, 0):
            yield from (Axis("length", size, equal(given, size, start), ints) for ints in (False, True))


def equal(given: list[torch.Tensor], size: int, start: int) -> dict[int, tuple[int, ...]]:
    """The dimensions of this size, from some dimension on."""
    dims = {i: tuple(d for d in range(start, t.dim()) if t.shape[d] == size) for i, t in enumerate(given)}
    return {i: found for i, found in dims.items() if found}


def resized(inputs: Any, axis: Axis, size: int) -> Any:
    """The same arguments with this size: what they hold is repeated, or cut off."""
    count = iter(range(1 << 30))

    def other(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            for dim in axis.dims.get(next(count), ()):
                value = value.index_select(dim, torch.arange(size) % axis.size)
            return value
        if isinstance(value, dict):
            return {key: other(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            return type(value)(other(item) for item in value)
        return size if axis.ints and type(value) is int and value == axis.size else value

    return other(inputs)


def candidates(size: int) -> list[int]:
    """Other sizes, the likeliest first: any, then multiples, as images and windows want them."""
    odd = [size + 3, 1, size + 1, max(size - 1, 2), 2 * size - 1]
    even = [2 * size, size // 2, size + size // 2, 4 * size, 3 * size]
    return [each for each in dict.fromkeys([*odd, *even]) if each not in (0, size)]

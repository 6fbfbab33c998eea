"""What earlier entries of a function took for a constant, and is none: numbers and sizes that change between calls."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType

import torch

from torchdynamo.cache.entries import entries_of
from torchdynamo.capture.source import Guard, Roots, Source
from torchdynamo.capture.types.slices import PARTS
from torchdynamo.graph.sizes import explained
from torchdynamo.guards.constants import same_constant
from torchdynamo.guards.kind import read
from torchdynamo.guards.kinds.tensor_match import TensorMeta

NUMBERS = (int, float)
MANY = 32  # numbers that change together are data, and no sizes: a symbol for each would cost more than it saves


def what_varies(code: CodeType, owner_id: int, roots: Roots) -> frozenset[Source]:
    """Where it is: what changed since, and what was found to change before."""
    guards = (guard for entry in entries_of(code, owner_id) for guard in entry.guards)
    found = frozenset(source for guard in guards for source in varying(guard, roots))
    measures = frozenset(source for source in found if source.how in ("size", "stride"))
    return found if len(found) - len(measures) <= MANY else measures


def varying(guard: Guard, roots: Roots) -> Iterator[Source]:
    """What a guard takes for a constant and is none."""
    if guard.kind == "TYPE_MATCH" and guard.arg in NUMBERS:
        yield guard.source
    elif guard.kind == "EQUALS_MATCH" and type(guard.arg) in NUMBERS:
        now = read(guard.source, roots)
        if type(now) is type(guard.arg) and not same_constant(guard.arg, now):
            yield guard.source
    elif guard.kind == "EQUALS_MATCH" and type(guard.arg) is torch.Size:
        now = read(guard.source, roots)
        if type(now) is torch.Size and len(now) == len(guard.arg):
            yield from (
                Source("item", guard.source, at)
                for at, (before, after) in enumerate(zip(guard.arg, now, strict=True))
                if before != after
            )
    elif guard.kind == "EQUALS_MATCH" and type(guard.arg) is slice:
        now = read(guard.source, roots)
        for name in PARTS if type(now) is slice else ():
            before, after = getattr(guard.arg, name), getattr(now, name)
            if type(before) in NUMBERS and type(after) is type(before) and after != before:
                yield Source("attr", guard.source, name)
    elif guard.kind == "TENSOR_MATCH" and isinstance(guard.arg, TensorMeta):
        now = read(guard.source, roots)
        if type(now) is int:
            yield guard.source  # a tensor in one call and a number in the next: another number will follow
        elif isinstance(now, torch.Tensor) and now.layout is torch.strided and not now.is_nested:
            yield from varying_dimensions(guard.source, guard.arg, now)


def varying_dimensions(source: Source, before: TensorMeta, now: torch.Tensor) -> Iterator[Source]:
    """The sizes that are others, and the strides that are where no size says so."""
    if before.size is None or before.stride is None or len(before.size) != now.dim():
        return
    for dim, length in enumerate(before.size):
        if length != now.size(dim):
            yield Source("size", source, dim)
    told = explained(now)
    for dim, stride in enumerate(before.stride):
        if stride is not None and stride != now.stride(dim) and dim not in told:
            yield Source("stride", source, dim)

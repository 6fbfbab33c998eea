"""Constants: objects that are known by their value. Two are equal if exact types and values are, at every depth."""

from __future__ import annotations

import struct
from typing import Any

import torch

ATOMS: frozenset[type] = frozenset(
    {
        *(bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented)),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    }
)


def parts_of(obj: Any) -> tuple[Any, ...] | None:
    """Return the parts of a compound constant; None for other objects."""
    cls = type(obj)
    if cls is tuple or cls is torch.Size:
        return tuple(obj)
    if cls is slice or cls is range:
        return obj.start, obj.stop, obj.step
    if cls is frozenset:
        return tuple(obj)
    return None


def is_constant(obj: Any) -> bool:
    """Return whether an object and all of its parts are constants."""
    if type(obj) in ATOMS:
        return True
    parts = parts_of(obj)
    return parts is not None and all(map(is_constant, parts))


def same_constant(a: Any, b: Any) -> bool:
    """Return whether two constants are equal: 1 is not 1.0, 0.0 is not -0.0, and nan is nan."""
    cls = type(a)
    if cls is not type(b):
        return False
    if cls is float:
        return struct.pack("d", a) == struct.pack("d", b)
    if cls is complex:
        return same_constant(a.real, b.real) and same_constant(a.imag, b.imag)
    if cls in ATOMS:
        return bool(a == b)
    ours, theirs = parts_of(a), parts_of(b)
    if ours is None or theirs is None or len(ours) != len(theirs):
        return False
    if cls is frozenset:
        return all(any(same_constant(part, other) for other in theirs) for part in ours)
    return all(map(same_constant, ours, theirs))

"""A constant: the same exact type, and equal; floats by their bits."""

from __future__ import annotations

import struct
from typing import Any

from torchdynamo.guards.kind import Kind


def same(a: Any, b: Any) -> bool:
    """Equal all the way down, types included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, slice):
        return same((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return bool(a == b)


def lower(guard: Any, node_of: Any) -> tuple[int, str, Any]:
    if type(guard.arg) is range or type(guard.arg) is frozenset:
        return LOWER_SPECIAL[type(guard.arg)](guard, node_of)
    return node_of(guard.source), "equal", guard.arg


def lower_set(guard: Any, node_of: Any) -> tuple[int, str, Any]:
    return node_of(guard.source), "set", tuple(guard.arg)


def lower_range(guard: Any, node_of: Any) -> tuple[int, str, Any]:
    """The native program has no ranges: its three numbers are compared through their attributes."""
    raise LookupError("expanded before lowering")


LOWER_SPECIAL: dict[type, Any] = {frozenset: lower_set, range: lower_range}
KIND = Kind("EQUALS_MATCH", holds=lambda value, arg, roots: same(arg, value), lower=lower, tell=repr)

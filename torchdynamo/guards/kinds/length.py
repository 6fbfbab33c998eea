"""Guard the number of items of a container."""

from __future__ import annotations

from collections import deque
from typing import Any

from torchdynamo.guards.kind import GuardDifference, GuardKind, by_node

MEASURED: tuple[type, ...] = (list, tuple, bytes, dict, set, frozenset, str, deque)


def length(value: Any) -> int | None:
    """Return the length without calling a subclass's `__len__`; None for an object of another type."""
    for base in MEASURED:
        if isinstance(value, base):
            return base.__len__(value)  # type: ignore[attr-defined]
    return None


KIND = GuardKind(
    "LENGTH",
    holds=lambda value, arg, roots: length(value) == arg,
    lower=by_node("length"),
    why=lambda value, arg, roots: GuardDifference(" length", str(arg), str(length(value))),
)

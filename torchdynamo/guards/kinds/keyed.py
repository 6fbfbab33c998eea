"""Guard that a dict has a key: the integer at another source."""

from __future__ import annotations

from typing import Any

from torchdynamo import _native
from torchdynamo.guards.kind import GuardDifference, GuardKind, read


def has_number(dct: Any, number: Any) -> bool:
    """Return whether an integer is certainly a key of a dict."""
    return isinstance(dct, dict) and type(number) is int and _native.has_key(dct, number) is True


KIND = GuardKind(
    "KEYED",
    holds=lambda value, arg, roots: has_number(value, read(arg, roots)),
    lower=lambda guard, node_of: (node_of(guard.source), "keyed", node_of(guard.arg)),
    why=lambda value, arg, roots: GuardDifference(f"[{arg}]", "there", "not there"),
)

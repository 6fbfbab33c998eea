"""Guard that a dict lacks a key, and any key of equal hash that may be equal to it."""

from __future__ import annotations

from torchdynamo.guards.items import has_key, keep_one, lower_one
from torchdynamo.guards.kind import GuardDifference, GuardKind, short

KIND = GuardKind(
    "NO_KEY",
    holds=lambda value, arg, roots: isinstance(value, dict) and has_key(value, arg) is False,
    lower=lower_one("no_key"),
    why=lambda value, arg, roots: GuardDifference(f"[{short(arg)}]", "not there", "there"),
    settle=keep_one,
)

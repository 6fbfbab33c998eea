"""Guard that a dict has a key, by Python's equality. Fails where only a key's own code could tell."""

from __future__ import annotations

from torchdynamo.guards.items import has_key, keep_one, lower_one
from torchdynamo.guards.kind import GuardDifference, GuardKind, short

KIND = GuardKind(
    "HAS_KEY",
    holds=lambda value, arg, roots: isinstance(value, dict) and has_key(value, arg) is True,
    lower=lower_one("has_key"),
    why=lambda value, arg, roots: GuardDifference(f"[{short(arg)}]", "there", "not there"),
    settle=keep_one,
)

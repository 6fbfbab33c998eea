"""A dict does not have a key, nor one of its hash that may be equal to it."""

from __future__ import annotations

from torchdynamo.guards.items import has_key, keep_one, lower_one
from torchdynamo.guards.kind import Change, Kind, short

KIND = Kind(
    "NO_KEY",
    holds=lambda value, arg, roots: isinstance(value, dict) and has_key(value, arg) is False,
    lower=lower_one("no_key"),
    why=lambda value, arg, roots: Change(f"[{short(arg)}]", "not there", "there"),
    settle=keep_one,
)

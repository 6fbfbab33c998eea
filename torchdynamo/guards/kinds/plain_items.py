"""Guard that a dict holds only numbers, strings and None, whose removal nobody can observe."""

from __future__ import annotations

from torchdynamo.capture.types.items import holds_plain
from torchdynamo.guards.kind import GuardDifference, GuardKind, short

KIND = GuardKind(
    "PLAIN_ITEMS",
    holds=lambda value, arg, roots: holds_plain(value),
    lower=lambda guard, node_of: (node_of(guard.source), "plain", None),
    why=lambda value, arg, roots: GuardDifference("", "a dict of numbers and strings", short(value)),
    describe=lambda arg: "",
)

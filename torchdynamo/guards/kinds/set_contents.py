"""Guard the items of a set."""

from __future__ import annotations

from torchdynamo.guards.items import keep_all, lower_items, same_items
from torchdynamo.guards.kind import GuardDifference, GuardKind, short

KIND = GuardKind(
    "SET_CONTENTS",
    holds=lambda value, arg, roots: isinstance(value, (set, frozenset)) and same_items(arg, value),
    lower=lower_items("set"),
    why=lambda value, arg, roots: GuardDifference(" items", short(set(arg)), short(value)),
    settle=keep_all,
)

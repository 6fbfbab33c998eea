"""Guard that C makes the instances of a class by `object.__new__`, which then leaves arguments to its `__init__`.

The class's attributes do not tell: where a `__new__` in Python was deleted, C goes on to look for one.
"""

from __future__ import annotations

from torchdynamo._native import made_plainly
from torchdynamo.guards.kind import GuardDifference, GuardKind, by_node

KIND = GuardKind(
    "PLAIN_MAKER",
    holds=lambda value, arg, roots: made_plainly(value),
    lower=by_node("plain_maker"),
    why=lambda value, arg, roots: GuardDifference(".__new__", "never there", "there, or deleted"),
)

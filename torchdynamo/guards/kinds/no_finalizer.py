"""Guard that what a dictionary, slot or cell holds has no `__del__` in Python: it may be dropped later."""

from __future__ import annotations

from typing import Any

from torchdynamo.capture.vm.finalizers import BY_NOBODY, held_at
from torchdynamo.capture.vm.lookup import class_lookup
from torchdynamo.core.source import Roots
from torchdynamo.guards.items import has_key
from torchdynamo.guards.kind import GuardDifference, GuardKind, by_node, short


def holds(value: Any, arg: Any, roots: Roots) -> bool:
    if isinstance(value, dict) and arg is not None and has_key(value, arg) is None:
        return False  # only code of a key's class could tell
    return type(class_lookup(type(held_at(value, arg)), "__del__")) in BY_NOBODY


KIND = GuardKind(
    "NO_FINALIZER",
    holds=holds,
    lower=by_node("no_finalizer"),
    why=lambda value, arg, roots: GuardDifference(
        "" if arg is None else f"[{short(arg)}]", "without a __del__", short(held_at(value, arg))
    ),
)

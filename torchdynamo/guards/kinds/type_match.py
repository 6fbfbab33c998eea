"""Guard the exact class of an object."""

from __future__ import annotations

from typing import Any

from torchdynamo.core.source import Guard
from torchdynamo.guards.identity import Weak, held, is_same
from torchdynamo.guards.kind import GuardDifference, GuardKind, NodeOf, short


def lower(guard: Guard, node_of: NodeOf) -> tuple[int, str, Any]:
    kept = guard.arg if type(guard.arg) is Weak else held(guard.arg)
    return node_of(guard.source), *(("type_weak", kept.ref) if type(kept) is Weak else ("type", kept))


def describe(arg: Any) -> str:
    """Return the name of a class."""
    return str(arg.name) if type(arg) is Weak else short(arg)


KIND = GuardKind(
    "TYPE_MATCH",
    holds=lambda value, arg, roots: is_same(arg, type(value)),
    lower=lower,
    why=lambda value, arg, roots: GuardDifference("", f"a {describe(arg)}", f"a {short(type(value))}"),
    describe=describe,
    settle=lambda guard, roots: guard if type(guard.arg) is Weak else guard._replace(arg=held(guard.arg)),
)

"""Guard the value of a constant: equal exact types and values, floats to the bit."""

from __future__ import annotations

from typing import Any

from torchdynamo.core.naming import text_of
from torchdynamo.core.source import Guard
from torchdynamo.guards.constants import is_constant, same_constant
from torchdynamo.guards.kind import GuardDifference, GuardKind, NodeOf


def lower(guard: Guard, node_of: NodeOf) -> tuple[int, str, Any]:
    if not is_constant(guard.arg):
        raise TypeError(f"not a constant: a {type(guard.arg).__qualname__}")
    return node_of(guard.source), "equal", guard.arg


KIND = GuardKind(
    "EQUALS_MATCH",
    holds=lambda value, arg, roots: same_constant(arg, value),
    lower=lower,
    why=lambda value, arg, roots: GuardDifference("", text_of(arg), text_of(value)[:80]),
)

"""What earlier entries of a function took for a constant, and is none: floats that differ from call to call."""

from __future__ import annotations

from types import CodeType

from torchdynamo.cache.entries import entries_of
from torchdynamo.capture.source import Guard, Roots, Source
from torchdynamo.guards.constants import same_constant
from torchdynamo.guards.kind import read


def varying_floats(code: CodeType, owner_id: int, roots: Roots) -> frozenset[Source]:
    """Where they are: what changed since, and what was found to change before."""
    guards = (guard for entry in entries_of(code, owner_id) for guard in entry.guards)
    return frozenset(guard.source for guard in guards if varies(guard, roots))


def varies(guard: Guard, roots: Roots) -> bool:
    """Whether the guard is about such a float."""
    if guard.kind == "TYPE_MATCH":
        return guard.arg is float
    if guard.kind != "EQUALS_MATCH" or type(guard.arg) is not float:
        return False
    now = read(guard.source, roots)
    return type(now) is float and not same_constant(guard.arg, now)

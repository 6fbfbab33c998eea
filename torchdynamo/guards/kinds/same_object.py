"""Guard that two sources hold the same object."""

from __future__ import annotations

from torchdynamo.guards.kind import MISSING, GuardDifference, GuardKind, read

KIND = GuardKind(
    "SAME_OBJECT",
    holds=lambda value, arg, roots: value is not MISSING and value is read(arg, roots),
    lower=lambda guard, node_of: (node_of(guard.source), "same", node_of(guard.arg)),
    why=lambda value, arg, roots: GuardDifference("", f"the same object as {arg}", "another object"),
)

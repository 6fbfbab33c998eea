"""Two sources hold one object."""

from __future__ import annotations

from torchdynamo.guards.kind import Kind

KIND = Kind(
    "SAME_OBJECT",
    holds=lambda value, arg, roots: value is arg.load(roots),
    lower=lambda guard, node_of: (node_of(guard.source), "same", node_of(guard.arg)),
    tell=lambda value: "another object",
)

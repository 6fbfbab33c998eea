"""How many items a container has."""

from __future__ import annotations

from torchdynamo.guards.kind import Kind, by_node

KIND = Kind(
    "LENGTH",
    holds=lambda value, arg, roots: len(value) == arg,
    lower=by_node("length"),
    tell=lambda value: f"{len(value)} items",
)

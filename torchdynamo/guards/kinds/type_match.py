"""The exact class of an object."""

from __future__ import annotations

from torchdynamo.guards.kind import Kind, by_node

KIND = Kind(
    "TYPE_MATCH",
    holds=lambda value, arg, roots: type(value) is arg,
    lower=by_node("type"),
    tell=lambda value: type(value).__qualname__,
)

"""A dict does not have a key."""

from __future__ import annotations

from torchdynamo.guards.kind import Kind, by_node

KIND = Kind(
    "NO_KEY",
    holds=lambda value, arg, roots: arg not in value,
    lower=by_node("no_key"),
    tell=lambda value: "the key is there",
)

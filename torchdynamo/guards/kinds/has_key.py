"""A dict has a key."""

from __future__ import annotations

from torchdynamo.guards.kind import Kind, by_node

KIND = Kind(
    "HAS_KEY", holds=lambda value, arg, roots: arg in value, lower=by_node("has_key"), tell=lambda value: "no such key"
)

"""The items of a set."""

from __future__ import annotations

from torchdynamo.guards.kind import Kind

KIND = Kind(
    "SET_CONTENTS",
    holds=lambda value, arg, roots: frozenset(value) == arg,
    lower=lambda guard, node_of: (node_of(guard.source), "set", tuple(guard.arg)),
    tell=repr,
)

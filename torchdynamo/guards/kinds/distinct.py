"""Several sources hold different objects."""

from __future__ import annotations

from typing import Any

from torchdynamo.guards.kind import Kind


def holds(value: Any, arg: Any, roots: Any) -> bool:
    return len({id(source.load(roots)) for source in arg}) == len(arg)


KIND = Kind(
    "DISTINCT",
    holds=holds,
    lower=lambda guard, node_of: (node_of(guard.source), "distinct", tuple(map(node_of, guard.arg))),
    tell=lambda value: "the same object twice",
)

"""Guard that several sources hold different objects."""

from __future__ import annotations

from typing import Any

from torchdynamo.core.source import Roots, Source
from torchdynamo.guards.kind import MISSING, GuardDifference, GuardKind, read


def holds(value: Any, arg: tuple[Source, ...], roots: Roots) -> bool:
    found = [read(source, roots) for source in arg]
    return MISSING not in map(id_or_missing, found) and len(set(map(id, found))) == len(found)


def id_or_missing(obj: Any) -> Any:
    return MISSING if obj is MISSING else id(obj)


def why(value: Any, arg: tuple[Source, ...], roots: Roots) -> GuardDifference:
    """Name the first two sources that hold one object."""
    seen: dict[int, Source] = {}
    for source in arg:
        first = seen.setdefault(id(read(source, roots)), source)
        if first is not source:
            return GuardDifference("", "different objects", f"{first} is {source}")
    return GuardDifference("", "different objects", "not all there")


KIND = GuardKind(
    "DISTINCT",
    holds=holds,
    lower=lambda guard, node_of: (node_of(guard.source), "distinct", tuple(map(node_of, guard.arg))),
    why=why,
    describe=lambda arg: ", ".join(map(str, arg)),
)

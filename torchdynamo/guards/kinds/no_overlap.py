"""The first tensor, which a graph writes to, shares no memory with the others."""

from __future__ import annotations

from typing import Any

from torchdynamo import _native
from torchdynamo.capture.source import Roots, Source
from torchdynamo.guards.kind import Change, Kind, read


def holds(value: Any, arg: tuple[Source, ...], roots: Roots) -> bool:
    return _native.tensors_apart(tuple(read(source, roots) for source in arg))


def why(value: Any, arg: tuple[Source, ...], roots: Roots) -> Change:
    """Names the first that is in the way."""
    for other in arg[1:]:
        if not holds(value, (arg[0], other), roots):
            return Change("", f"memory apart from {other}", "shared")
    return Change("", "memory of its own", "shared")


KIND = Kind(
    "NO_OVERLAP",
    holds=holds,
    lower=lambda guard, node_of: (node_of(guard.source), "apart", tuple(map(node_of, guard.arg))),
    why=why,
)

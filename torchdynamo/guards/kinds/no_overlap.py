"""Guard that tensors which a graph writes to share no memory with each other or with its other inputs."""

from __future__ import annotations

from typing import Any

from torchdynamo import _native
from torchdynamo.core.source import Guard, Roots, Source
from torchdynamo.guards.kind import GuardDifference, GuardKind, NodeOf, read


def holds(value: Any, arg: tuple[tuple[Source, ...], tuple[Source, ...]], roots: Roots) -> bool:
    written, others = (tuple(read(source, roots) for source in group) for group in arg)
    return _native.tensors_apart(written, others)


def why(value: Any, arg: tuple[tuple[Source, ...], tuple[Source, ...]], roots: Roots) -> GuardDifference:
    """Name the first two sources whose tensors share memory."""
    written, others = arg
    for index, source in enumerate(written):
        for other in (*written[:index], *others):
            if not holds(value, ((source,), (other,)), roots):
                return GuardDifference("", f"{source} apart from {other} in memory", "shared")
    return GuardDifference("", "memory of its own", "shared")


def lower(guard: Guard, node_of: NodeOf) -> tuple[int, str, Any]:
    written, others = guard.arg
    return node_of(guard.source), "apart", (tuple(map(node_of, written)), tuple(map(node_of, others)))


KIND = GuardKind(
    "NO_OVERLAP",
    holds=holds,
    lower=lower,
    why=why,
    describe=lambda arg: ", ".join(str(source) for group in arg for source in group),
)

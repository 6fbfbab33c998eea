"""Guards to the native program: one node for each source, one check for each guard, and what the code is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType
from typing import Any

from torchdynamo import _native
from torchdynamo.capture.source import Guard, Roots, Source
from torchdynamo.guards.kinds import KINDS


def complete(guards: Iterable[Guard], roots: Roots) -> list[Guard]:
    """Fill in the facts that are read off the frame's objects: capture only says that they matter."""
    made = []
    for guard in guards:
        if guard.kind == "TENSOR_MATCH" and guard.arg is None:
            guard = guard._replace(arg=_native.tensor_meta(guard.source.load(roots)))
        elif guard.kind == "GLOBAL_STATE" and guard.arg is None:
            guard = guard._replace(arg=_native.global_state())
        made.extend(expand(guard))
    return made


def expand(guard: Guard) -> list[Guard]:
    """A range is its three numbers; every other guard is itself."""
    if guard.kind == "EQUALS_MATCH" and type(guard.arg) is range:
        parts = ("start", "stop", "step")
        made = [guard._replace(kind="TYPE_MATCH", arg=range)]
        return made + [
            guard._replace(source=Source("attr", guard.source, part), arg=getattr(guard.arg, part)) for part in parts
        ]
    return [guard]


class Nodes:
    """The nodes of one program, parents before children."""

    def __init__(self) -> None:
        self.index: dict[Source, int] = {}
        self.rows: list[tuple[str, int, Any]] = []

    def of(self, source: Source) -> int:
        """The node of a source, made if it is new."""
        found = self.index.get(source)
        if found is None:
            parent = -1 if source.base is None else self.of(source.base)
            found = self.index[source] = len(self.rows)
            self.rows.append(row(source, parent))
        return found


def row(source: Source, parent: int) -> tuple[str, int, Any]:
    """How the native program takes this step; modules and pinned objects are simply there."""
    if source.how == "pinned":
        return "constant", -1, source.arg.object
    if source.how == "module":
        return "constant", -1, source.load(NOWHERE)
    return source.how, parent, source.arg


NOWHERE = Roots({}, {}, {}, {})


def lower(guards: Sequence[Guard], bound: Sequence[Source], code: CodeType) -> _native.GuardProgram:
    """The native program of these guards; `bound` are the sources the code gets in its tuple."""
    nodes = Nodes()
    checks = [KINDS[guard.kind].lower(guard, nodes.of) for guard in guards]
    fetched = tuple(nodes.of(source) for source in bound)
    return _native.GuardProgram(code, tuple(nodes.rows), tuple(checks), fetched)

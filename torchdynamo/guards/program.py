"""Lower guards to the native program: one node for each source, one check for each guard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType
from typing import Any

from torchdynamo import _native
from torchdynamo.core.source import LED_TO, Guard, Roots, Source
from torchdynamo.guards import looking
from torchdynamo.guards.kinds import KINDS


def complete(guards: Iterable[Guard], roots: Roots) -> list[Guard]:
    """Settle guards while their frame exists; the results hold no object of the user's."""
    settled: list[Guard] = []
    for guard in guards:
        fact = KINDS[guard.kind].settle(guard, roots)
        if fact.kind == guard.kind or all(fact[:3] != other[:3] for other in settled):
            settled.append(fact)
    return settled


class Nodes:
    """The nodes of one program, parents before children."""

    def __init__(self) -> None:
        self.index: dict[Source, int] = {}
        self.rows: list[tuple[str, int, Any]] = []

    def of(self, source: Source) -> int:
        """Return the index of a source's node, adding it if it is new."""
        found = self.index.get(source)
        if found is None:
            parent = -1 if source.base is None else self.of(source.base)
            arg = self.of(source.arg) if source.how in LED_TO else source.arg
            found = self.index[source] = len(self.rows)
            self.rows.append(row(source, parent, arg))
        return found


def row(source: Source, parent: int, arg: Any) -> tuple[str, int, Any]:
    """Return the native form of a source's last step; modules and pinned objects become constants."""
    if source.how == "pinned":
        weak = source.arg.weak
        return ("constant", -1, source.arg.object) if weak is None else ("weak", -1, weak)
    if source.how == "module":
        return "constant", -1, source.load(NOWHERE)
    if source.how == "cache":
        return "attr", parent, "<cache>"
    return source.how, parent, arg


NOWHERE = Roots({}, {}, {}, {})


looking.register()


def lower(guards: Sequence[Guard], bound: Sequence[Source], code: CodeType) -> _native.GuardProgram:
    """Return the native program of these guards; `bound` are the sources of the code's bound tuple."""
    nodes = Nodes()
    checks = [KINDS[guard.kind].lower(guard, nodes.of) for guard in guards]
    fetched = tuple(nodes.of(source) for source in bound)
    return _native.GuardProgram(code, tuple(nodes.rows), tuple(checks), fetched)

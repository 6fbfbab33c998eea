"""Collect events of compiled frames, and present them as a report for people."""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch.fx
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from torchdynamo import _native
from torchdynamo.backends import ensemble
from torchdynamo.core import reasons
from torchdynamo.core.source import Guard
from torchdynamo.report.debug import place
from torchdynamo.report.recompiles import Decision, NumberInput, decisions


@dataclass(frozen=True)
class CompileEvent:
    """A frame that went through the pipeline: its graph, if it has one, and what ended that, if anything did."""

    function: str
    filename: str
    line: int  # line at which the graph ended early, or else at which the function begins
    graph: torch.fx.GraphModule | None = None
    ops: int = 0
    guards: Sequence[Guard] = ()
    seconds: float = 0.0
    backend: str = ""
    reason: str | None = None  # id of a row in core/reasons.py
    reason_text: str = ""
    numbers: Sequence[NumberInput] = ()  # symbols that are inputs of the graph
    again: str = ""  # why the function is compiled again, if it was compiled before
    entry: _native.Entry | None = None  # it counts the calls that it serves


_watching: ContextVar[tuple[list[CompileEvent], ...]] = ContextVar("watching", default=())


@contextlib.contextmanager
def collecting() -> Iterator[list[CompileEvent]]:
    """Collect this thread's events in a list during the block. Blocks may be nested."""
    events: list[CompileEvent] = []
    token = _watching.set((*_watching.get(), events))
    try:
        yield events
    finally:
        _watching.reset(token)


def watched() -> bool:
    """Return whether anybody collects events; otherwise none needs to be made."""
    return bool(_watching.get())


def emit(event: CompileEvent) -> None:
    """Append an event to the lists of all active collectors."""
    for events in _watching.get():
        events.append(event)


@dataclass(frozen=True)
class Explanation:
    """The result of `torchdynamo.explain(fn)(*args)`, to be printed."""

    function: str
    events: list[CompileEvent] = field(repr=False)
    result: Any = field(default=None, repr=False)  # result of the call
    members: Sequence[tuple[str, ...]] = field(default=(), repr=False)  # rows of `members_of`

    @property
    def compiled(self) -> list[CompileEvent]:
        """Frames that have a graph."""
        return [event for event in self.events if event.graph is not None]

    @property
    def graphs(self) -> list[torch.fx.GraphModule]:
        return [event.graph for event in self.compiled if event.graph is not None]

    @property
    def graph_count(self) -> int:
        return len(self.compiled)

    @property
    def ops_per_graph(self) -> list[int]:
        return [event.ops for event in self.compiled]

    @property
    def op_count(self) -> int:
        return sum(self.ops_per_graph)

    @property
    def breaks(self) -> list[CompileEvent]:
        """Frames whose graph ended before they returned."""
        return [event for event in self.events if event.reason and event.reason not in reasons.SKIPS]

    @property
    def skips(self) -> list[CompileEvent]:
        """Frames that were not compiled at all."""
        return [event for event in self.events if event.reason in reasons.SKIPS]

    @property
    def graph_break_count(self) -> int:
        return len(self.breaks)

    @property
    def break_reasons(self) -> list[str]:
        return [event.reason_text for event in self.breaks]

    @property
    def guards(self) -> list[Guard]:
        return [guard for event in self.compiled for guard in event.guards]

    @property
    def symbols(self) -> list[NumberInput]:
        """Sizes and numbers that may differ in the next call."""
        return [number for event in self.compiled for number in event.numbers]

    @property
    def decisions(self) -> list[Decision]:
        """Conditions on symbols that lines of the program decide: another answer compiles the function again."""
        return decisions(self.guards)

    @property
    def recompiles(self) -> list[str]:
        """Messages that say why functions were compiled again."""
        return [event.again for event in self.compiled if event.again]

    @property
    def seconds(self) -> float:
        return sum(event.seconds for event in self.events)

    def __rich__(self) -> RenderableType:
        heading = (
            f"{self.function}: {_count(self.graph_count, 'graph')}, {_count(self.op_count, 'operation')}, "
            f"{_count(self.graph_break_count, 'break')}, {_count(len(self.guards), 'guard')}, {self.seconds:.3f} s"
        )
        parts: list[RenderableType] = [Text(heading, style="bold")]
        if self.compiled:
            parts += [Text("\nGraphs"), Padding(self._graph_table(), (0, 2))]
        if self.members:
            parts += [Text("\nMembers of the ensemble"), Padding(self._member_table(), (0, 2))]
        if self.breaks:
            parts += [Text("\nBreaks"), *(_told(event) for event in self.breaks)]
        if self.skips:
            parts += [Text("\nLeft to Python"), *(_told(event) for event in self.skips)]
        if self.symbols:
            parts += [Text("\nSymbols"), Padding(self._symbol_table(), (0, 2))]
        if self.decisions:
            parts += [Text("\nDecided by symbols"), *(Padding(Text(str(each)), (0, 2)) for each in self.decisions)]
        if self.recompiles:
            parts += [Text("\nCompiled again"), *(Padding(Text(each), (0, 2)) for each in self.recompiles)]
        if self.guards:
            parts += [Text("\nGuards"), Padding(self._guard_table(), (0, 2))]
        return Group(*parts)

    def __str__(self) -> str:
        console = Console(width=120, color_system=None, force_terminal=False)
        with console.capture() as captured:
            console.print(self)
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def _graph_table(self) -> Table:
        table = _table("", "function", "place", "operations", "guards", "seconds", "backend")
        for index, event in enumerate(self.compiled):
            place = _place(event.filename, event.line)
            counts = (str(event.ops), str(len(event.guards)), f"{event.seconds:.3f}")
            table.add_row(str(index), event.function, place, *counts, event.backend)
        return table

    def _member_table(self) -> Table:
        table = _table("", "member", "state", "time", "note")
        for row in self.members:
            table.add_row(*row)
        return table

    def _symbol_table(self) -> Table:
        table = _table("", "symbol", "is", "bounds")
        for index, event in enumerate(self.compiled):
            for number in event.numbers:
                table.add_row(str(index), number.name, str(number.source), number.bounds)
        return table

    def _guard_table(self) -> Table:
        """Return a table of guards, with one row for all graphs that have an equal guard."""
        graphs: dict[tuple[str, str], list[int]] = {}
        for index, event in enumerate(self.compiled):
            for guard in event.guards:
                graphs.setdefault((guard.kind, place(guard.source)), []).append(index)
        table = _table("kind", "on", "graphs")
        for (kind, source), found in graphs.items():
            table.add_row(kind, source, ", ".join(map(str, sorted(set(found)))))
        return table


def members_of(events: Sequence[CompileEvent]) -> list[tuple[str, ...]]:
    """Return (graph, member, state, time, note) for each member of each graph that the ensemble serves now."""
    graphs = [event.graph for event in events if event.graph is not None]
    return [(str(index), *row) for index, graph in enumerate(graphs) for row in ensemble.rows_of(graph)]


def _told(event: CompileEvent) -> RenderableType:
    """Return an event's reason with the user's line."""
    source = linecache.getline(event.filename, event.line).strip()
    text = f"{_place(event.filename, event.line)} in {event.function}: {event.reason_text} [{event.reason}]"
    return Padding(Text(f"{text}\n    {source}" if source else text), (0, 2))


def _table(*columns: str) -> Table:
    table = Table(*columns, box=None, pad_edge=False, show_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    return table


def _place(filename: str, line: int) -> str:
    return f"{Path(filename).name}:{line}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"

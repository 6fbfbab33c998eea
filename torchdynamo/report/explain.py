"""Collect events of compiled frames, and present them as a report for people."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from io import StringIO
from os import PathLike
from typing import Any

import torch.fx
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from torchdynamo import _native
from torchdynamo.backends import ensemble, regions, rewrites
from torchdynamo.backends.cuda_graphs import seam
from torchdynamo.core import reasons
from torchdynamo.core.source import Guard
from torchdynamo.graph import numpy_nodes
from torchdynamo.report.recompiles import Decision, NumberInput, decisions
from torchdynamo.report.screen import WIDTH, as_text, screen
from torchdynamo.report.summary import Report


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
    stored: str = ""  # what the store of captures has of it, or why nothing; "" if the store is off


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
    report: Report = field(repr=False)
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
    def regions(self) -> list[str]:
        """Return a line for each graph whose repeated blocks `config.regions` asked for: how many, or why none."""
        outcomes = [(index, regions.outcome_of(graph)) for index, graph in enumerate(self.graphs)]
        return [f"graph {index}: {outcome}" for index, outcome in outcomes if outcome is not None]

    @property
    def cuda_graphs(self) -> list[str]:
        """Return lines on each graph's CUDA graphs, if they were wanted: recordings, replays, why calls ran plain."""
        return [f"graph {index}: {line}" for index, graph in enumerate(self.graphs) for line in seam.outcome_of(graph)]

    @property
    def rewrites(self) -> list[str]:
        """Return lines on each graph's attention, with its line: which operator computes it, or why none does."""
        outcomes = [(index, rewrites.outcome_of(graph)) for index, graph in enumerate(self.graphs)]
        return [f"graph {index}: {line}" for index, found in outcomes if found is not None for line in found.lines()]

    @property
    def numpy(self) -> list[str]:
        """Return a line for each call that NumPy itself runs within a graph, which no backend compiles."""
        calls = [(index, numpy_nodes.lines_of(graph)) for index, graph in enumerate(self.graphs)]
        return [f"graph {index}: run by NumPy: {line}" for index, lines in calls for line in lines]

    @property
    def stored(self) -> list[str]:
        """Return a line for each frame: what the store has of it, or why nothing; no lines if the store is off.

        A frame without a graph goes by its function's name.
        """
        graphs = {id(event): f"graph {index}" for index, event in enumerate(self.compiled)}
        return [f"{graphs.get(id(each), each.function)}: {each.stored}" for each in self.events if each.stored]

    @property
    def recompiles(self) -> list[str]:
        """Messages that say why functions were compiled again."""
        return [event.again for event in self.compiled if event.again]

    @property
    def seconds(self) -> float:
        return sum(event.seconds for event in self.events)

    def to_dict(self) -> dict[str, Any]:
        """Return graphs, breaks, recompiles and guards as plain data, in the format of `Report.to_dict`."""
        return self.report.to_dict()

    def to_json(self, path: str | PathLike[str] | None = None) -> str:
        """Return the same as JSON, and write it to a file if one is named. Raises OSError if that fails."""
        return self.report.to_json(path)

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """Return the same as one HTML page, and write it to a file if one is named. Raises OSError if that fails."""
        return self.report.to_html(path)

    def to_trace(self, path: str | PathLike[str] | None = None) -> str:
        """Return the same as a trace for Perfetto, and write it to a file if one is named. Raises OSError as above."""
        return self.report.to_trace(path)

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [screen(self.report.to_dict())]
        if self.members:
            parts += [Text("\nMembers of the ensemble"), Padding(self._member_table(), (0, 2))]
        if self.regions:
            parts += [Text("\nRegions"), *(Padding(Text(each), (0, 2)) for each in self.regions)]
        if self.cuda_graphs:
            parts += [Text("\nCUDA graphs"), *(Padding(Text(each), (0, 2)) for each in self.cuda_graphs)]
        if self.rewrites:
            parts += [Text("\nRewrites"), *(Padding(Text(each), (0, 2)) for each in self.rewrites)]
        if self.numpy:
            parts += [Text("\nNumPy"), *(Padding(Text(each), (0, 2)) for each in self.numpy)]
        if self.stored:
            parts += [Text("\nStore"), *(Padding(Text(each), (0, 2)) for each in self.stored)]
        if self.decisions:
            parts += [Text("\nSpecializations"), *(Padding(Text(str(each)), (0, 2)) for each in self.decisions)]
        return Group(*parts)

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        """Return the report for a notebook."""
        console = Console(width=WIDTH, record=True, file=StringIO())
        console.print(self)
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")

    def _member_table(self) -> Table:
        table = Table("graph", "member", "state", "time", "note", box=None, pad_edge=False, show_edge=False)
        for row in self.members:
            table.add_row(*row)
        return table


def members_of(events: Sequence[CompileEvent]) -> list[tuple[str, ...]]:
    """Return (graph, member, state, time, note) for each member of each graph that the ensemble serves now."""
    graphs = [event.graph for event in events if event.graph is not None]
    return [(str(index), *row) for index, graph in enumerate(graphs) for row in ensemble.rows_of(graph)]

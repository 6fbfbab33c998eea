"""The demo's chart for a terminal: a bar for each contender of each program, and a sentence on what it shows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from contest import CONTENDERS, Outcome
from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

WIDTH = 40
COLORS = {"eager": "bright_black", "torch.compile": "yellow", "torchdynamo": "green"}


def chart(outcomes: Sequence[Outcome]) -> RenderableType:
    """Return the chart of some programs."""
    return Group(*(part for outcome in outcomes for part in (Text(), *_program(outcome))))


def _program(outcome: Outcome) -> list[RenderableType]:
    medians = {name: statistics.median(outcome.rounds[name]) for name in CONTENDERS}
    bars = Table(box=None, show_header=False, pad_edge=False)
    for name in CONTENDERS:
        graphs = outcome.graphs[name]
        bars.add_row(
            name,
            Bar(max(medians.values()), 0, medians[name], width=WIDTH, color=COLORS[name]),
            Text(duration(medians[name]), justify="right"),
            Text(f"fastest {duration(min(outcome.rounds[name]))}", style="dim", justify="right"),
            Text(f"{graphs} graph{'s' * (graphs != 1)}" if name != "eager" else "", style="dim", justify="right"),
        )
    verdict = "; ".join(outcome.verdict(other) for other in ("torch.compile", "eager"))
    return [
        Text.assemble((outcome.title, "bold"), f" (per {outcome.unit})"),
        Padding(bars, (0, 2)),
        Padding(Text.assemble((verdict, "bold" if outcome.gains else ""), ". ", (outcome.about, "dim")), (0, 2)),
    ]


def duration(seconds: float) -> str:
    """Return a time in the unit that leaves it between 1 and 1,000."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.1f} us"

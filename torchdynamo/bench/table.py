"""Print measurements as a table, with geometric means and the worst of each backend."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import torch
from rich.table import Table

from torchdynamo.backends.ensemble.identity import fingerprint
from torchdynamo.bench.backends import EAGER
from torchdynamo.bench.results import ResultRow


def header(threads: int) -> str:
    """Return the machine that the figures are of, and how busy it is now."""
    if threads:
        torch.set_num_threads(threads)
    return f"{fingerprint()}; torch {torch.__version__}; load {os.getloadavg()[0]:.2f}"


def geomean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers; 0 if there are none."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 0.0


def table(rows: Sequence[ResultRow], metric: str) -> Table:
    """Return a table with a line for each model and batch, and a column for each backend."""
    own = [row for row in rows if row.metric == metric]
    backends = list(dict.fromkeys(row.backend for row in own if row.backend))
    made = Table("model", "batch", *backends, "remark", title=metric)
    for model, batch in dict.fromkeys((row.model, row.batch) for row in own):
        found = {row.backend: row for row in own if (row.model, row.batch) == (model, batch)}
        remarks = "; ".join(row.remark for row in found.values() if row.remark)
        made.add_row(model, str(batch), *(cell(found.get(each), metric) for each in backends), remarks)
    if metric in ("speedup", "training", "overhead"):
        made.add_section()
        ratios = {each: [row.speedup for row in own if row.backend == each and row.speedup] for each in backends}
        made.add_row("geometric mean", "", *(f"{geomean(ratios[each]):.2f}x" for each in backends), "")
        made.add_row("worst", "", *(f"{min(ratios[each], default=0.0):.2f}x" for each in backends), "")
    return made


def cell(row: ResultRow | None, metric: str) -> str:
    """Return milliseconds, and how many times faster than the eager module that is."""
    if row is None:
        return "-"
    if metric == "coverage":
        return f"{row.value:.0f}"
    return f"{row.value:.2f} ms" + (f" ({row.speedup:.2f}x)" if row.backend != EAGER and row.speedup else "")

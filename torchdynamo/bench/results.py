"""Keep measurements in a CSV file, to which each model is appended as it ends: a run that was cut off is resumed."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

from torchdynamo.bench.measure import Measured


class ResultRow(NamedTuple):
    """One row: a model at a batch size under a backend. Times are milliseconds; `speedup` is over the eager module."""

    metric: str
    model: str
    batch: int
    threads: int
    backend: str
    value: float
    lower: float
    upper: float
    first_ms: float
    speedup: float
    remark: str


class ResultFile:
    """The rows of a file, and which measurements it has."""

    def __init__(self, path: Path, fresh: bool) -> None:
        """Open a file. fresh: forget what is there. Raises ValueError for a CSV file with other columns."""
        self.path = path
        self.rows: list[ResultRow] = []
        if fresh and path.exists():
            path.unlink()
        if path.exists():
            with path.open(newline="") as file:
                reader = csv.reader(file)
                if tuple(next(reader, ())) != ResultRow._fields:
                    raise ValueError(f"{path} is no file of this runner: name another by --out, or give --fresh")
                self.rows = [row_of(line) for line in reader if len(line) == len(ResultRow._fields)]

    def has(self, metric: str, model: str, batch: int, backends: list[str]) -> bool:
        """Return whether all of these were measured, or the model cannot be."""
        found = {row.backend for row in self.rows if (row.metric, row.model, row.batch) == (metric, model, batch)}
        return "" in found or set(backends) <= found

    def add(self, metric: str, model: str, batch: int, threads: int, found: list[Measured]) -> list[ResultRow]:
        """Append what was measured of a model, and return its rows; those of other backends stay."""
        base = found[0].value if metric != "coverage" else 0.0
        scale = 1.0 if metric == "coverage" else 1e3
        rows = [
            ResultRow(
                *(metric, model, batch, threads, each.backend),
                *(round(each.value * scale, 4), round(each.lower * scale, 4), round(each.upper * scale, 4)),
                *(round(each.first * 1e3, 1), round(base / each.value, 3) if each.value else 0.0, each.remark),
            )
            for each in found
        ]
        is_new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow(ResultRow._fields)
            writer.writerows(rows)
        self.rows += rows
        return rows


def row_of(line: list[str]) -> ResultRow:
    """Return a row of strings with its numbers as numbers."""
    kinds = (str, str, int, int, str, float, float, float, float, float, str)
    return ResultRow(*(kind(text) for kind, text in zip(kinds, line, strict=True)))

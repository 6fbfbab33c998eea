"""The command `tune`: build every member for every recorded graph, measure those that are right, keep the results."""

from __future__ import annotations

import argparse
import contextlib
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from torchdynamo.backends.ensemble import processes
from torchdynamo.backends.ensemble.database import Database, Row, path, winner_of
from torchdynamo.backends.ensemble.identity import fingerprint
from torchdynamo.backends.ensemble.member import MEMBERS
from torchdynamo.backends.ensemble.recorded import GRAPH
from torchdynamo.backends.ensemble.requests import TrialRequest, load_users_members
from torchdynamo.bench.table import geomean
from torchdynamo.tuning import pools

CONTEST = "torchdynamo.tuning.contest"


class SpeedupRow(NamedTuple):
    """One row of speedups.csv: a member for a graph. Times are milliseconds."""

    graph: str
    member: str
    state: str
    winner: bool
    median_ms: float
    speedup: float
    build_seconds: float
    error: float
    reason: str


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser("python -m torchdynamo tune", description=__doc__)
    made.add_argument("folder", type=Path, help="what torchdynamo.record, or TORCHDYNAMO_RECORD, wrote")
    made.add_argument("--jobs", type=int, default=1, help="builds at a time")
    made.add_argument("--ray", metavar="ADDRESS", default="", help='build on a Ray cluster; "local" starts one')
    made.add_argument("--members", default="", help="names, separated by commas; by default all")
    made.add_argument("--constants", action="store_true", help='tune for options={"constants": True}')
    made.add_argument("--timeout", type=float, default=300.0, help="seconds for each build")
    made.add_argument("--memory", type=float, default=0.0, help="MiB for each build; 0 for no limit")
    made.add_argument("--seconds", type=float, default=10.0, help="of measuring for each graph, at most")
    made.add_argument("--import", dest="imports", action="append", default=[], help="a file or module with members")
    made.add_argument("--out", type=Path, default=Path("speedups.csv"))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune. Returns the exit status: 0, or 2 for bad input."""
    given = parser().parse_args(arguments)
    load_users_members(given.imports)
    names = given.members.split(",") if given.members else list(MEMBERS)
    folders = sorted(each.parent for each in given.folder.glob(f"*/{GRAPH}"))
    unknown = [name for name in names if name not in MEMBERS]
    if unknown or not folders:
        known = f"the ensemble has no member {', '.join(unknown)}; it has {', '.join(MEMBERS)}"
        print(known if unknown else f"{given.folder} has no recorded graphs", file=sys.stderr)
        return 2
    limits = given.timeout, given.memory
    way = pools.on_ray(given.ray, *limits) if given.ray else pools.on_this_machine(given.jobs, *limits)
    with contextlib.ExitStack() as stack:
        try:
            pool = stack.enter_context(way)
        except ImportError:
            print("--ray needs the package ray: pip install torchdynamo-standalone[ray]", file=sys.stderr)
            return 2
        console = Console()
        found = tune_all(given, folders, names, pool, console)
    write(given.out, found)
    console.print(f"{fingerprint()}; {given.out} has every member", highlight=False)
    console.print(summary(found))
    return 0


def tune_all(
    given: argparse.Namespace, folders: Sequence[Path], names: list[str], pool: pools.Pool, console: Console
) -> dict[str, list[Row]]:
    """Return the rows of each recorded graph; keep them in the database, if there is one, as they come."""
    found: dict[str, list[Row]] = {}
    file = path()
    database = None if file is None else Database(file)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("graphs", total=len(folders))
        for folder in folders:
            base = TrialRequest(str(folder), names, given.constants, given.imports, given.seconds)
            key, found[folder.name] = tune(base, pool, given.timeout * len(names), given.memory)
            if database is not None and key:
                database.keep(key, found[folder.name])
            progress.advance(task)
    return found


def tune(base: TrialRequest, pool: pools.Pool, timeout: float, memory: float) -> tuple[str, list[Row]]:
    """Return the key of a graph in the database, "" if it has none, and a row for eager and each member."""
    answers = pool([base._replace(members=[each]) for each in base.members])
    rows = {row.member: row for answer in answers for row in answer.rows}
    right = [name for name, row in rows.items() if row.state == "built"]
    answer = processes.run(CONTEST, base._replace(members=right), timeout, memory)
    measured = {row.member: row for row in answer.rows}  # those that only crash beside others have no time
    eager = [row for row in answer.rows if row.member == "eager"]
    return answer.key, [*eager, *({**rows, **measured}[name] for name in rows)]


def write(out: Path, found: dict[str, list[Row]]) -> None:
    """Write speedups.csv."""
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(SpeedupRow._fields)
        for graph, rows in found.items():
            writer.writerows(speedup_rows(graph, rows))


def speedup_rows(graph: str, rows: Sequence[Row]) -> list[SpeedupRow]:
    """Return the rows of a graph, with each member's speed over eager."""
    winner = winner_of(rows)
    base = next((row.timing.median for row in rows if row.member == "eager" and row.timing), 0.0)
    return [
        SpeedupRow(
            graph,
            row.member,
            row.state,
            row.member == winner,
            round(row.timing.median * 1e3, 4) if row.timing else 0.0,
            speed(row, base),
            round(row.build_seconds, 2),
            row.error,
            row.reason,
        )
        for row in rows
    ]


def speed(row: Row, base: float) -> float:
    """Return how many times faster than eager's `base` seconds a member is; 0 if it was not measured."""
    return round(base / row.timing.median, 3) if row.timing else 0.0


def summary(found: dict[str, list[Row]]) -> Table:
    """Return a table of the winners, with the geometric mean of their speed over eager."""
    table = Table("graph", "eager ms", "winner", "speedup", "not taken")
    best = []
    for graph, rows in found.items():
        shown = {row.member: row for row in speedup_rows(graph, rows)}
        winner = next((row for row in shown.values() if row.winner), None)
        out = ", ".join(f"{row.member} ({row.state})" for row in shown.values() if row.state != "built")
        if winner is None:
            table.add_row(graph[:12], "", "", "", out)
            continue
        best.append(max(winner.speedup, 1.0))
        table.add_row(graph[:12], f"{shown['eager'].median_ms:.3f}", winner.member, f"{winner.speedup:.2f}x", out)
    table.add_section()
    table.add_row("geometric mean", "", "", f"{geomean(best):.2f}x", "")
    return table

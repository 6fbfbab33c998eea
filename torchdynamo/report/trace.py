"""Write a report as a trace in the format of Chrome, for https://ui.perfetto.dev: compilations, and calls of graphs.

Each thread has tracks of its own: one with its compilations by phase and with what happened at a moment (breaks,
recompiles, failures), one with the calls of compiled graphs. Times are microseconds since `baseTimeNanoseconds`, as in
the traces of `torch.profiler`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torchdynamo.report.page.timeline import PHASES
from torchdynamo.report.timing import PREFIX

PROCESS = 1
Row = dict[str, Any]


def trace(report: Mapping[str, Any]) -> Row:
    """Return the trace of a report, which is what `Report.to_dict()` returns."""
    environment = report["environment"]
    threads = [*dict.fromkeys(row["thread"] for row in (*report["events"], *report["steps"]))]
    rows = [_metadata("process_name", 0, name=f"torchdynamo: {report['title']}")]
    tracks = itertools.count(1)
    for number, thread in enumerate(threads, 1):
        of = f", thread {number}" if len(threads) > 1 else ""
        events = [row for row in report["events"] if row["thread"] == thread]
        calls = [row for row in report["steps"] if row["thread"] == thread]
        compiles = [row for row in events if row["seconds"]]
        moments = [row for row in events if not row["seconds"]]
        for at, lane in enumerate(lanes(compiles) or ([[]] if moments else [])):
            track = next(tracks)
            rows.append(_metadata("thread_name", track, name=f"compiling{of}"))
            rows += [each for row in lane for each in compile_slices(row, track)]
            rows += [_instant(row, track) for row in moments if at == 0]
        for lane in lanes(calls):
            track = next(tracks)
            rows.append(_metadata("thread_name", track, name=f"calls of graphs{of}"))
            rows += [_slice(f"{PREFIX}{row['graph']}", "call", track, row["started"], row["ended"]) for row in lane]
    return {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": int(1e9 * report["began"]),
        "otherData": {name: environment[name] for name in ("torchdynamo", "torch", "python", "device", "system")},
        "traceEvents": rows,
    }


def lanes(rows: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return rows with times on as few lanes as it takes for none to overlap another of its lane.

    A compilation in the midst of another one is told as long as its own phases, which is all that is known of it: the
    outer one is drawn as if it had begun later.
    """
    found: list[list[Mapping[str, Any]]] = []
    for row in sorted(rows, key=lambda row: row["started"]):
        free = next((lane for lane in found if _microseconds(lane[-1]["ended"]) <= _microseconds(row["started"])), None)
        if free is None:
            found.append([row])
        else:
            free.append(row)
    return found


def compile_slices(row: Mapping[str, Any], track: int) -> Iterator[Row]:
    """Yield the slice of a compilation and, inside of it, those of its phases, one after another."""
    where = {**_where(row), "graph": row["graph"], "because": row["text"]}
    yield _slice(
        f"{row['kind']} {row['graph'] or row['function']}", "compile", track, row["started"], row["ended"], where
    )
    names = [
        *(name for name in PHASES if name in row["seconds"]),
        *(name for name in row["seconds"] if name not in PHASES),
    ]
    edges = [row["started"], *_summed(row["started"], [row["seconds"][name] for name in names])]
    for name, (start, end) in zip(names, itertools.pairwise(edges), strict=True):
        yield _slice(name, "phase", track, start, min(end, row["ended"]))


def _summed(start: float, lengths: Sequence[float]) -> Iterator[float]:
    return itertools.islice(itertools.accumulate(lengths, initial=start), 1, None)


def _slice(name: str, kind: str, track: int, start: float, end: float, about: Row | None = None) -> Row:
    began = _microseconds(start)
    length = round(_microseconds(end) - began, 3)
    return {
        "ph": "X",
        "name": name,
        "cat": kind,
        "pid": PROCESS,
        "tid": track,
        "ts": began,
        "dur": length,
        "args": about or {},
    }


def _instant(row: Mapping[str, Any], track: int) -> Row:
    """Return an event that takes no time, such as a break, with its line and reason."""
    name = f"{row['kind']} {os.path.basename(row['filename'])}:{row['line']}"
    about = {**_where(row), "reason": row["reason"], "text": row["text"]}
    common = {"ph": "i", "s": "t", "name": name, "cat": row["kind"], "pid": PROCESS, "tid": track}
    return {**common, "ts": _microseconds(row["ended"]), "args": about}


def _where(row: Mapping[str, Any]) -> Row:
    return {name: row[name] for name in ("function", "filename", "line")}


def _metadata(kind: str, track: int, **about: Any) -> Row:
    return {"ph": "M", "name": kind, "pid": PROCESS, "tid": track, "args": about}


def _microseconds(seconds: float) -> float:
    """Return a time in microseconds, rounded to what Perfetto keeps: nanoseconds."""
    return round(1e6 * seconds, 3)

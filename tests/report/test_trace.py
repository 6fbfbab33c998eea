"""The trace of a report: slices that nest, durations that are the report's, moments with their lines and reasons."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from report_sample import SECONDS, report

import torchdynamo
from torchdynamo.__main__ import main
from torchdynamo.report.saving import path_of_rank, save
from torchdynamo.report.summary import Report
from torchdynamo.report.trace import trace

NANOSECOND = 1e-3
Row = dict[str, Any]


def program(x: torch.Tensor, scale: object) -> torch.Tensor:
    y = x.sin()
    if y.sum() > 0:  # the break
        y = y.cos()
    return y * (2 if scale == "two" else 1)


BREAK = program.__code__.co_firstlineno + 2


@pytest.fixture(scope="module")
def explained() -> torchdynamo.report:
    found = torchdynamo.explain(program, calls=3)(torch.ones(3), "one")
    return found.report


def tracks(events: list[Row]) -> dict[int, list[Row]]:
    """The slices by track, in the order in which they begin, longer ones first."""
    found = defaultdict(list)
    for each in events:
        if each["ph"] == "X":
            found[each["tid"]].append(each)
    return {track: sorted(rows, key=lambda row: (row["ts"], -row["dur"])) for track, rows in found.items()}


def nested(events: list[Row]) -> list[tuple[Row, ...]]:
    """The slices with those they lie in, outermost first; fails if two overlap and none lies in the other."""
    found = []
    for rows in tracks(events).values():
        around: list[Row] = []
        for row in rows:
            while around and around[-1]["ts"] + around[-1]["dur"] <= row["ts"] + NANOSECOND / 2:
                around.pop()
            if around:
                assert row["ts"] + row["dur"] <= around[-1]["ts"] + around[-1]["dur"] + NANOSECOND / 2
            around.append(row)
            found.append(tuple(around))
    return found


def test_phases_lie_in_their_compilation_and_take_the_reports_time(explained: Report) -> None:
    found = json.loads(explained.to_trace())
    events = found["traceEvents"]
    compiles = {row["graph"]: row for row in explained["events"] if row["kind"] == "compile"}
    assert len(compiles) >= 2
    phases: dict[str, dict[str, float]] = defaultdict(dict)
    for row in nested(events):
        if row[-1]["cat"] == "phase":
            outer, inner = row
            assert outer["cat"] == "compile"
            phases[outer["args"]["graph"]][inner["name"]] = inner["dur"]
        elif row[-1]["cat"] == "compile":
            (outer,) = row
            event = compiles[outer["args"]["graph"]]
            assert outer["name"] == f"compile {event['graph']}"
            assert outer["ts"] == pytest.approx(1e6 * event["started"], abs=NANOSECOND)
            assert outer["dur"] == pytest.approx(1e6 * sum(event["seconds"].values()), abs=2 * NANOSECOND)
    assert set(phases) == set(compiles)
    for graph, event in compiles.items():
        assert list(phases[graph]) == [
            name for name in ("capture", "graph", "backend", "code", "guards") if name in event["seconds"]
        ]
        for name, seconds in event["seconds"].items():
            assert phases[graph][name] == pytest.approx(1e6 * seconds, abs=2 * NANOSECOND)


def test_calls_of_graphs_are_named_as_in_profiles(explained: Report) -> None:
    calls = [row for row in json.loads(explained.to_trace())["traceEvents"] if row.get("cat") == "call"]
    assert [row["name"] for row in calls] == [f"torchdynamo: {row['graph']}" for row in explained["steps"]]
    assert [row["name"].rpartition("/")[2] for row in calls] == [
        "0",
        "1",
    ]  # one step: a graph up to the break, the rest
    for row, step in zip(calls, explained["steps"], strict=True):
        assert row["dur"] == pytest.approx(1e6 * (step["ended"] - step["started"]), abs=NANOSECOND)


def test_a_break_is_a_moment_with_its_line_and_reason(explained: Report) -> None:
    events = json.loads(explained.to_trace())["traceEvents"]
    (row,) = [row for row in events if row["ph"] == "i"]
    assert row["name"] == f"break test_trace.py:{BREAK}"
    assert row["args"]["reason"] == "TD101 data-dependent-branch"
    assert (row["args"]["line"], row["args"]["function"]) == (BREAK, "program")
    threads = {each["tid"]: each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert threads[row["tid"]] == "compiling"
    assert set(tracks(events)) <= set(threads)
    assert [each["args"]["name"] for each in events if each["name"] == "process_name"] == ["torchdynamo: program"]


def test_recompiles_are_moments_and_threads_have_tracks_of_their_own() -> None:
    torchdynamo.reset()
    compiled = torchdynamo.compile(program, backend="eager")
    compiled(torch.ones(3), "one")
    thread = threading.Thread(target=compiled, args=(torch.ones(3), "two"))
    thread.start()
    thread.join()
    events = json.loads(torchdynamo.report().to_trace())["traceEvents"]
    names = [each["args"]["name"] for each in events if each["name"] == "thread_name"]
    assert names == ["compiling, thread 1", "compiling, thread 2"]
    (row,) = [row for row in events if row.get("cat") == "recompile"]
    assert row["ph"] == "i"
    assert "scale: 'one' -> 'two'" in row["args"]["text"]
    assert row["args"]["line"] == BREAK + 1
    assert nested(events)


def test_a_compilation_in_the_midst_of_another_has_a_track_of_its_own() -> None:
    built = report(2)
    first, second = built["events"]
    total = sum(SECONDS.values())
    second.update(started=first["started"] + total / 3, ended=first["started"] + 4 * total / 3)
    found = nested(trace(built)["traceEvents"])
    assert sum(rows[-1]["cat"] == "phase" for rows in found) == 2 * len(SECONDS)
    assert len({rows[0]["tid"] for rows in found if rows[0]["cat"] == "compile"}) == 2


def test_a_large_report_nests_to_the_nanosecond() -> None:
    events = trace(report(300))["traceEvents"]
    assert len(nested(events)) == 300 * (1 + len(SECONDS) + 1)


def test_a_report_without_events_is_a_trace() -> None:
    found = trace(report(0))
    assert [row["ph"] for row in found["traceEvents"]] == ["M"]
    assert found["baseTimeNanoseconds"] == 1_800_000_000_000_000_000


def test_the_end_of_a_name_chooses_the_trace(tmp_path: Path) -> None:
    saved, written = tmp_path / "out.json", tmp_path / "out.trace.json"
    save(Report(report(3)), saved)
    assert json.loads(saved.read_text())["format"] == 1
    assert main(["report", str(saved), "--to", str(written)]) == 0
    assert json.loads(written.read_text()) == trace(report(3))
    assert main(["report", str(written)]) == 2
    assert path_of_rank("a/out.trace.json", {"RANK": "3"}) == "a/out.rank3.trace.json"
    assert path_of_rank("a/out.json", {"RANK": "12"}) == "a/out.rank12.json"
    assert path_of_rank("a/out.json", {}) == "a/out.json"

"""Sum up the events of a process, or of some calls, as plain data: what logs, `explain`, the page and the trace show.

`Report.to_dict()` is the format (1): titles and numbers only, nothing of the program's objects, ready for JSON.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torchdynamo import _native, config, events
from torchdynamo.cache.entries import CompiledEntry
from torchdynamo.core.source import Guard
from torchdynamo.events import Event, Place
from torchdynamo.graph.node_places import place_of
from torchdynamo.guards.explain import named
from torchdynamo.report import rows
from torchdynamo.report.page import page
from torchdynamo.report.timing import GraphCall
from torchdynamo.report.trace import trace

FORMAT = 1
VERSION = "1.0.0"
_OBJECT = re.compile(r"<[\w ]+>|[\w']+(?:\.\w+)?")


class Report:
    """Summary of the compiler's work: graphs, breaks with costs, recompiles, guards, and functions left to Python."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data (dicts, lists, strings, numbers)."""
        return dict(self._facts)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the report as JSON, and write it to a file if one is named. Raises OSError if that fails."""
        text = json.dumps(self._facts, indent=1)
        if path is not None:
            Path(path).write_text(text)
        return text

    def to_html(self, path: str | os.PathLike[str] | None = None, *, redact: bool = False) -> str:
        """Return the report as one HTML page that needs no network, and write it to a file if one is named.

        redact: hide strings of the program, values that changed, and variables of the environment.

        Raises OSError if the file cannot be written.
        """
        text = page(self._facts, redact=redact)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_trace(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return a trace of the compilations and the calls of one step, and write it to a file if one is named.

        It is JSON in the format of Chrome, which https://ui.perfetto.dev opens. Raises OSError if the file cannot be
        written.
        """
        text = json.dumps(trace(self._facts))
        if path is not None:
            Path(path).write_text(text)
        return text

    def __getitem__(self, name: str) -> Any:
        return self._facts[name]


def report_of(
    found: Sequence[Event],
    *,
    title: str = "",
    graph_calls: Sequence[GraphCall] = (),
    calls: int | None = None,
    skipped: Iterable[tuple[str, Place]] = (),
) -> Report:
    """Return the report of some events. Entries that are alive add how often they were used, and their guards.

    graph_calls: when compiled graphs ran, if that was timed: what breaks cost is read from it.
    calls: of the outermost function, to count breaks per call; None takes the calls of each break's outermost function.
    skipped: functions that were left to Python by a rule.
    """
    compiles = [event for event in found if event.kind == "compile"]
    entries = {event.number: _entry_of(event) for event in compiles}
    hits = {number: entry.hits for number, entry in entries.items() if entry is not None}
    ends = {event.parent: event for event in found if event.kind == "break" and event.parent}
    functions = _functions(compiles, entries, hits, ends)
    breaks = rows.break_rows(found, compiles, hits, rows.costs(compiles, ends, graph_calls), calls)
    step = rows.one_step(graph_calls)
    facts = {
        "format": FORMAT,
        "title": title,
        "began": rows.BEGAN_AT,
        "environment": environment(),
        "totals": {
            "graphs": len(compiles),
            "operators": sum(event.operators for event in compiles),
            "graph_calls": sum(hits.values()),
            "breaks": len(breaks),
            "breaks_per_call": sum(each["per_call"] or 0.0 for each in breaks),
            "recompiles": sum(event.kind == "recompile" for event in found),
            "skips": len(list(skipped)) + sum(event.kind == "skip" for event in found),
            "fallbacks": sum(event.kind == "fallback" for event in found),
            "limits": sum(event.kind == "limit" for event in found),
            "step_seconds": max(each.ended for each in step) - min(each.started for each in step) if step else None,
            "seconds": _summed(event.seconds for event in compiles),
        },
        "functions": functions,
        "breaks": breaks,
        "recompiles": [rows.recompile_row(event) for event in found if event.kind == "recompile"],
        "skips": rows.skip_rows(found, skipped),
        "problems": [rows.problem_row(each) for each in rows.first_of(found, ("fallback", "limit", "error"))],
        "events": [rows.event_row(event) for event in found],
        "steps": [rows.step_row(each) for each in step],
    }
    return Report(facts)


def environment() -> dict[str, Any]:
    """Return the versions, the device, and the settings and variables that differ from the defaults."""
    gpu = torch.cuda.is_available()
    return {
        "torchdynamo": VERSION,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name() if gpu else "cpu",
        "threads": torch.get_num_threads(),
        "settings": {name: str(value) for name, value in config.changed().items()},
        "variables": {
            name: value for name, value in os.environ.items() if name.startswith(("TORCHDYNAMO_", "TORCH_LOGS"))
        },
    }


def _entry_of(event: Event) -> _native.Entry | None:
    """Return the entry that a frame was compiled to, if it is still in use."""
    code = None if event.code is None else event.code()
    made = None if event.made is None else event.made()
    if code is None or made is None:
        return None
    return next((each for each in _native.cache_entries(code) if each.code is made), None)


def _functions(
    compiles: Sequence[Event],
    entries: Mapping[int, _native.Entry | None],
    hits: Mapping[int, int],
    ends: Mapping[int, Event],
) -> list[dict[str, Any]]:
    """Return a row for each function with its versions, in the order in which they were compiled first."""
    versions: dict[str, list[Event]] = defaultdict(list)
    for event in compiles:
        versions[rows.function_of(event)].append(event)
    functions = []
    for found in versions.values():
        first = found[0].place
        described = [_version(event, entries[event.number], hits.get(event.number), ends) for event in found]
        row = {"function": first.function, "filename": first.filename, "line": first.line, "versions": described}
        functions.append(row)
    return functions


def _version(event: Event, entry: _native.Entry | None, calls: int | None, ends: Mapping[int, Event]) -> dict[str, Any]:
    end = ends.get(event.number)
    record: CompiledEntry | None = entry.info if entry is not None else None
    gm = record.graph if record is not None else None
    return {
        "number": int(event.graph.rpartition("/")[2]),
        "graph": event.graph,
        "calls": calls,
        "operators": event.operators,
        "backend": event.backend,
        "line": event.place.line,
        "because": event.text,
        "ends": None if end is None else {**rows.reason_of(end.reason), "line": end.place.line, "text": end.text},
        "seconds": dict(event.seconds),
        "inputs": [] if gm is None else _inputs(gm),
        "symbols": [
            {"name": name, "source": source, "minimum": least, "maximum": most}
            for name, source, least, most in event.symbols
        ],
        "guards": [] if record is None else _guards(record.guards),
        "nodes": [] if gm is None else _nodes(gm),
    }


def _inputs(gm: Any) -> list[dict[str, str]]:
    return [
        {"name": node.name, "type": _type_of(node.meta.get("example_value"))}
        for node in gm.graph.find_nodes(op="placeholder")
    ]


def _type_of(value: Any) -> str:
    """Return what an input is: dtype and sizes of a tensor, or the name of its class."""
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    sizes = ", ".join(map(str, value.shape))
    return f"{str(value.dtype).removeprefix('torch.')}[{sizes}] {value.device}"


def _nodes(gm: Any) -> list[dict[str, Any]]:
    """Return the graph's operators with the user's lines."""
    rows = []
    for node in gm.graph.nodes:
        if node.op.startswith("call_"):
            place = place_of(node)
            where = {"filename": place.filename, "line": place.line} if place else {"filename": "", "line": 0}
            target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
            rows.append({"name": node.name, "operator": target, **where})
    return rows


def _guards(guards: Any) -> list[dict[str, Any]]:
    """Return the guards by object: how many of which kind, and the words of memory that a hit compares."""
    objects: dict[str, list[tuple[Guard, int]]] = defaultdict(list)
    for guard, cost in zip(guards, guards.program.costs(), strict=True):
        start = _OBJECT.match(named(guard.source))
        name = "torch's state" if guard.kind == "GLOBAL_STATE" else start[0].strip("'") if start else "numbers"
        objects[name].append((guard, cost))
    return [
        {
            "object": name,
            "kinds": dict(Counter(guard.kind for guard, _ in found)),
            "count": len(found),
            "words": sum(max(cost, 0) for _, cost in found),
            "line": next((guard.position.line for guard, _ in found if guard.position is not None), None),
        }
        for name, found in objects.items()
    ]


def _summed(seconds: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for each in seconds:
        total.update(each)
    return dict(total)


def report(title: str = "") -> Report:
    """Return what the compiler has done in this process since `torchdynamo.reset()`, as far as it is kept.

    title: a name for the report; the program's by default.
    """
    return report_of(events.recent(), title=title or Path(sys.argv[0] or "python").name, skipped=events.skips())

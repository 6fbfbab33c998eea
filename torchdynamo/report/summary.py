"""Sum up the events of a process, or of some calls, as plain data: what logs, `explain`, the page and the trace show.

`Report.to_dict()` is the format (1): titles and numbers only, nothing of the program's objects, ready for JSON.
"""

from __future__ import annotations

import json
import linecache
import os
import platform
import re
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torchdynamo import _native, config, events
from torchdynamo.cache.entries import CompiledEntry
from torchdynamo.core.reasons import REASONS
from torchdynamo.core.source import Guard
from torchdynamo.events import Event, Place
from torchdynamo.graph.node_places import place_of
from torchdynamo.report.page import page
from torchdynamo.report.timing import GraphCall

FORMAT = 1
VERSION = "0.1.0"
_BEGAN = time.perf_counter()
_OBJECT = re.compile(r"[\w']+(?:\.\w+)?")
_SHOWN_STEPS = 2000


class Report:
    """What the compiler did: graphs, breaks and what each costs, recompiles, guards, and what stayed Python."""

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
    breaks = _breaks(found, compiles, hits, _costs(compiles, ends, graph_calls), calls)
    facts = {
        "format": FORMAT,
        "title": title,
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
            "seconds": _summed(event.seconds for event in compiles),
        },
        "functions": functions,
        "breaks": breaks,
        "recompiles": [_recompile(event) for event in found if event.kind == "recompile"],
        "skips": _skips(found, skipped),
        "problems": [_problem(each) for each in _first_of(found, ("fallback", "limit", "error"))],
        "events": [_event(event) for event in found],
        "steps": [_step(each) for each in list(graph_calls)[-_SHOWN_STEPS:]],
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
        versions[_function_of(event)].append(event)
    rows = []
    for found in versions.values():
        first = found[0].place
        described = [_version(event, entries[event.number], hits.get(event.number), ends) for event in found]
        row = {"function": first.function, "filename": first.filename, "line": first.line, "versions": described}
        rows.append(row)
    return rows


def _function_of(event: Event) -> str:
    """Return the function's part of a graph's name: `f graph 0` of `f graph 0/1`."""
    return event.graph.rpartition("/")[0]


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
        "ends": None if end is None else {**_reason(end.reason), "line": end.place.line, "text": end.text},
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
        start = _OBJECT.match(str(guard.source))
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


def _costs(
    compiles: Sequence[Event], ends: Mapping[int, Event], graph_calls: Sequence[GraphCall]
) -> dict[tuple[Any, ...], float]:
    """Return the seconds that a break takes at most: from the end of its graph to the beginning of the next one.

    That is a median. What was compiled in between does not count.
    """
    breaks = {event.graph: ends[event.number].key for event in compiles if event.number in ends}
    gaps: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    last: dict[int, GraphCall] = {}
    for call in graph_calls:
        before = last.get(call.thread)
        last[call.thread] = call
        if before is None or before.graph not in breaks:
            continue
        meanwhile = [each for each in compiles if before.ended < each.ended <= call.started]
        if not meanwhile:
            gaps[breaks[before.graph]].append(call.started - before.ended)
    return {key: statistics.median(found) for key, found in gaps.items()}


def _breaks(
    found: Sequence[Event],
    compiles: Sequence[Event],
    hits: Mapping[int, int],
    costs: Mapping[tuple[Any, ...], float],
    calls: int | None,
) -> list[dict[str, Any]]:
    """Return a row for each line that breaks graphs, the costliest first."""
    grouped: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
    for event in found:
        if event.kind == "break":
            grouped[event.key].append(event)
    outermost = _outermost_calls(compiles, hits)
    rows = []
    for key, same in grouped.items():
        first = same[0]
        ran = sum(hits.get(event.parent, 0) for event in same) or len(same)  # nothing of the frame was compiled
        owners = [event for event in compiles if event.number in {each.parent for each in same}]
        of, name = max((outermost[_function_of(event)] for event in owners), default=(0, ""))
        if calls is not None:
            of, name = calls, ""
        seconds = costs.get(key)
        row = {
            **_place(first.place),
            "source": linecache.getline(first.place.filename, first.place.line).strip(),
            "text": first.text,
            "hint": first.hint,
            **_reason(first.reason),
            "count": len(same),
            "calls": ran,
            "per_call": ran / of if of else None,
            "of": name,
            "microseconds": None if seconds is None else 1e6 * seconds,
            "chain": [_place(each) for each in first.chain],
        }
        rows.append(row)
    return sorted(rows, key=lambda row: -(row["microseconds"] or 0.0) * (row["per_call"] or 1.0))


def _outermost_calls(compiles: Sequence[Event], hits: Mapping[int, int]) -> dict[str, tuple[int, str]]:
    """Return, for each function, the calls and the name of the outermost compiled function that leads to it."""
    first = {_function_of(event): event for event in reversed(compiles)}
    entered: Counter[str] = Counter()  # calls that began at the function's beginning, not in a continuation
    for event in compiles:
        if event.place.line == first[_function_of(event)].place.line:
            entered[_function_of(event)] += hits.get(event.number, 0)
    by_place = {(event.place.filename, event.place.function): name for name, event in first.items()}
    answer = {}
    for name in first:
        outer, seen = name, {name}
        while True:
            chain = first[outer].chain
            caller = by_place.get((chain[0].filename, chain[0].function)) if chain else None
            if caller is None or caller in seen:
                break
            outer = caller
            seen.add(outer)
        answer[name] = entered[outer], first[outer].place.function
    return answer


def _recompile(event: Event) -> dict[str, Any]:
    facts = {"source": event.source, "old": event.old, "new": event.new, "text": event.text, "hint": event.hint}
    return {**_place(event.place), **facts, "count": events.count(event)}


def _skips(found: Sequence[Event], skipped: Iterable[tuple[str, Place]]) -> list[dict[str, Any]]:
    """Return the functions that stayed Python, by reason."""
    reasons: dict[str, list[Place]] = defaultdict(list)
    for reason, place in [*((each.reason, each.place) for each in found if each.kind == "skip"), *skipped]:
        reasons[reason].append(place)
    return [
        {**_reason(reason), "count": len(places), "functions": [_named(each) for each in places]}
        for reason, places in reasons.items()
    ]


def _reason(reason: str) -> dict[str, str]:
    """Return a reason's number, slug and title."""
    row = REASONS.get(reason)
    number, slug = (row.number, row.slug) if row is not None else ("", reason.replace(" ", "-"))
    return {"reason": number, "slug": slug, "title": reason, "url": ""}


def _named(place: Place) -> str:
    return f"{place.function} ({place.filename}:{place.line})"


def _first_of(found: Sequence[Event], kinds: Sequence[str]) -> list[Event]:
    """Return the events of some kinds, the first at each place."""
    return list({event.key: event for event in reversed(found) if event.kind in kinds}.values())[::-1]


def _problem(event: Event) -> dict[str, Any]:
    return {"kind": event.kind, **_place(event.place), "text": event.text, "count": events.count(event)}


def _step(call: GraphCall) -> dict[str, Any]:
    function = call.graph.rpartition(" graph ")[0]
    times = {"started": call.started - _BEGAN, "ended": call.ended - _BEGAN}
    return {"graph": call.graph, "function": function, "thread": call.thread, **times}


def _event(event: Event) -> dict[str, Any]:
    facts = {"number": event.number, "kind": event.kind, "graph": event.graph, "thread": event.thread}
    began = event.ended - sum(event.seconds.values())
    times = {"started": began - _BEGAN, "ended": event.ended - _BEGAN, "seconds": dict(event.seconds)}
    return {**facts, **_place(event.place), "text": event.text, "parent": event.parent, **times}


def _place(place: Place) -> dict[str, Any]:
    return {
        "filename": place.filename,
        "line": place.line,
        "end_line": place.end_line,
        "column": place.column,
        "end_column": place.end_column,
        "function": place.function,
    }


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

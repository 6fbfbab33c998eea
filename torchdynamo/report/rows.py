"""Make the rows of a report that tell of places in the program: breaks, recompiles, skips, problems, events, steps."""

from __future__ import annotations

import linecache
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchdynamo import events
from torchdynamo.core.reasons import REASONS
from torchdynamo.events import Event, Place
from torchdynamo.report.timing import GraphCall

BEGAN = time.perf_counter()
"""Times of a report are seconds since then."""
BEGAN_AT = time.time()
"""Start of the process in seconds since 1970."""
MOST_CALLS = 2000
"""Calls of graphs that a report has, of a step in which no graph is called a second time."""
LISTED = 20
"""Functions that a report lists for each reason not to compile them."""


def function_of(event: Event) -> str:
    """Return the function's part of a graph's name: `f graph 0` of `f graph 0/1`."""
    return event.graph.rpartition("/")[0]


def costs(
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


def break_rows(
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
    for key, found_there in grouped.items():
        first, same = found_there[0], of_its_own(found_there)
        ran = sum(hits.get(event.parent, 0) for event in same) or len(same)  # nothing of the frame was compiled
        owners = [event for event in compiles if event.number in {each.parent for each in same}]
        of, name = max((outermost[function_of(event)] for event in owners), default=(0, ""))
        if calls is not None:
            of, name = calls, ""
        seconds = costs.get(key)
        row = {
            **place_row(first.place),
            "source": linecache.getline(first.place.filename, first.place.line).strip(),
            "text": first.text,
            "hint": first.hint,
            **reason_of(first.reason),
            "count": len(same),
            "calls": ran,
            "per_call": ran / of if of else None,
            "of": name,
            "microseconds": None if seconds is None else 1e6 * seconds,
            "chain": [place_row(each) for each in first.chain],
        }
        rows.append(row)
    return sorted(rows, key=lambda row: -(row["microseconds"] or 0.0) * (row["per_call"] or 1.0))


def of_its_own(same: Sequence[Event]) -> Sequence[Event]:
    """Return those of the breaks at a place that are no other one, met by a caller that stopped before the call."""
    met = [event for event in same if not event.at_call]
    nearest = min(len(event.chain) for event in same)
    return met or [event for event in same if len(event.chain) == nearest]


def _outermost_calls(compiles: Sequence[Event], hits: Mapping[int, int]) -> dict[str, tuple[int, str]]:
    """Return, for each function, the calls and the name of the outermost compiled function that leads to it."""
    first = {function_of(event): event for event in reversed(compiles)}
    entered: Counter[str] = Counter()  # calls that began at the function's beginning, not in a continuation
    for event in compiles:
        if event.place.line == first[function_of(event)].place.line:
            entered[function_of(event)] += hits.get(event.number, 0)
    begins = sorted((event.place.line, name) for name, event in first.items())
    answer = {}
    for name in first:
        outer, seen = name, {name}
        while True:
            chain = first[outer].chain
            caller = first[outer].part_of or (_function_at(chain[0], begins, first) if chain else None)
            if caller is None or caller not in first or caller in seen:
                break
            outer = caller
            seen.add(outer)
        answer[name] = entered[outer], first[outer].place.function
    return answer


def _function_at(place: Place, begins: Iterable[tuple[int, str]], first: Mapping[str, Event]) -> str | None:
    """Return the compiled function that a place is in: methods of several classes of a file may have one name."""
    there = [
        name
        for line, name in begins
        if line <= place.line
        and (first[name].place.filename, first[name].place.function) == (place.filename, place.function)
    ]
    return there[-1] if there else None


def recompile_row(event: Event) -> dict[str, Any]:
    facts = {"source": event.source, "old": event.old, "new": event.new, "text": event.text, "hint": event.hint}
    return {**place_row(event.place), **facts, "count": events.count(event)}


def skip_rows(found: Sequence[Event], skipped: Iterable[tuple[str, Place]]) -> list[dict[str, Any]]:
    """Return how many functions stayed Python for each reason, and the first of them by name."""
    reasons: dict[str, list[Place]] = defaultdict(list)
    for reason, place in [*((each.reason, each.place) for each in found if each.kind == "skip"), *skipped]:
        reasons[reason].append(place)
    return [
        {**reason_of(reason), "count": len(places), "functions": [_named(each) for each in places[:LISTED]]}
        for reason, places in reasons.items()
    ]


def reason_of(reason: str) -> dict[str, str]:
    """Return a reason's number, slug and title."""
    row = REASONS.get(reason)
    number, slug = (row.number, row.slug) if row is not None else ("", reason.replace(" ", "-"))
    return {"reason": number, "slug": slug, "title": reason, "url": ""}


def _named(place: Place) -> str:
    return f"{place.function} ({place.filename}:{place.line})"


def first_of(found: Sequence[Event], kinds: Sequence[str]) -> list[Event]:
    """Return the events of some kinds, the first at each place."""
    return list({event.key: event for event in reversed(found) if event.kind in kinds}.values())[::-1]


def problem_row(event: Event) -> dict[str, Any]:
    facts = {"kind": event.kind, "graph": event.graph, **place_row(event.place)}
    return {**facts, "text": event.text, "count": events.count(event)}


def one_step(calls: Iterable[GraphCall]) -> list[GraphCall]:
    """Return the calls of the last step: those since the same thread called the graph that was called last before."""
    found = list(calls)
    if not found:
        return []
    last = found[-1]
    for at in range(len(found) - 2, -1, -1):
        if (found[at].graph, found[at].thread) == (last.graph, last.thread):
            return found[at + 1 :]
    return found[-MOST_CALLS:]


def step_row(call: GraphCall) -> dict[str, Any]:
    function = call.graph.rpartition(" graph ")[0]
    times = {"started": call.started - BEGAN, "ended": call.ended - BEGAN}
    return {"graph": call.graph, "function": function, "thread": call.thread, **times}


def event_row(event: Event) -> dict[str, Any]:
    facts = {"number": event.number, "kind": event.kind, "graph": event.graph, "thread": event.thread}
    why = reason_of(event.reason)
    facts["reason"] = f"{why['reason']} {why['slug']}".strip()
    began = event.ended - sum(event.seconds.values())
    times = {"started": began - BEGAN, "ended": event.ended - BEGAN, "seconds": dict(event.seconds)}
    return {**facts, **place_row(event.place), "text": event.text, "parent": event.parent, **times}


def place_row(place: Place) -> dict[str, Any]:
    return {
        "filename": place.filename,
        "line": place.line,
        "end_line": place.end_line,
        "column": place.column,
        "end_column": place.end_column,
        "function": place.function,
    }

"""Draw timelines as SVG: the graph calls of one step, and the compiles of the process by phase."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from torchdynamo.report.page.wording import duration, place, shown

PHASES = ("capture", "graph", "backend", "code", "guards")  # in the order in which a compile goes through them
WIDTH = 1000.0  # of the drawing, in its own units; the page stretches it
NARROW = 1.0  # bars that are narrower than this are drawn as part of the bar that they touch
HEIGHT, GAP = 14, 4  # of a bar: page.css has the height too
MOST_LANES = 8


class Bar(NamedTuple):
    """A stretch of time: a class of page.css, start and end in seconds, a text, an anchor of the page or nothing."""

    kind: str
    start: float
    end: float
    text: str
    target: str = ""


class Timeline(NamedTuple):
    """A drawing, the kinds of bars that it has, and where its axis begins and ends, in seconds."""

    svg: Markup
    kinds: list[str]
    start: float
    end: float


def step_timeline(steps: Sequence[Mapping[str, Any]], anchors: Mapping[str, str]) -> Timeline | None:
    """Return the timeline of one step: calls of graphs, and the Python between them. None if no step was timed.

    `anchors` maps names of graphs to where the page shows them.
    """
    calls = sorted(steps, key=lambda each: each["started"])
    if not calls:
        return None
    graphs = [
        Bar(
            "graph",
            each["started"],
            each["ended"],
            f"{each['graph']}: {duration(each['ended'] - each['started'])}",
            anchors.get(each["graph"], ""),
        )
        for each in calls
    ]
    pythons, busy = [], calls[0]["ended"]
    for last, call in itertools.pairwise(calls):
        if call["started"] > busy:
            text = f"Python after {last['graph']}: {duration(call['started'] - busy)}"
            pythons.append(Bar("python", busy, call["started"], text, anchors.get(last["graph"], "")))
        busy = max(busy, call["ended"])
    return drawn([graphs, pythons] if pythons else [graphs])


def process_timeline(events: Sequence[Mapping[str, Any]], anchors: Mapping[str, str]) -> Timeline | None:
    """Return the timeline of all compiles, each by its phases, threads below each other. None without events.

    `anchors` maps names of graphs to where the page shows them.
    """
    lanes: list[list[Bar]] = []
    by_thread: dict[Any, list[Mapping[str, Any]]] = {}
    for event in sorted(events, key=lambda each: each["started"]):
        by_thread.setdefault(event["thread"], []).append(event)
    for each in by_thread.values():
        lanes += packed(compile_bars(event, anchors) for event in each)
    return drawn(lanes) if lanes else None


def compile_bars(event: Mapping[str, Any], anchors: Mapping[str, str]) -> list[Bar]:
    """Return the bars of an event: one for each phase with a time, one after another, and one for the rest."""
    what = f"{event['kind']} of {event['function']}, {place(event['filename'], event['line'])}"
    target = anchors.get(event["graph"] or "", "")
    bars, now = [], event["started"]
    for phase in PHASES:
        seconds = event["seconds"].get(phase, 0.0)
        if seconds > 0:
            bars.append(Bar(phase, now, now + seconds, f"{phase} {duration(seconds)}: {what}", target))
            now += seconds
    if not bars or now < event["ended"]:
        kind = "other" if event["kind"] == "compile" else "mark"
        bars.append(Bar(kind, now, max(now, event["ended"]), what, target))
    return bars


def packed(groups: Iterable[list[Bar]]) -> list[list[Bar]]:
    """Return lanes of bars that do not overlap; each group of bars stays in one lane."""
    lanes: list[list[Bar]] = []
    for group in groups:
        free = (lane for lane in lanes if lane[-1].end <= group[0].start)
        lane = next(free, None)
        if lane is None and len(lanes) == MOST_LANES:
            lane = lanes[-1]
        if lane is None:
            lanes.append(lane := [])
        lane += group
    return lanes


def drawn(lanes: Sequence[Sequence[Bar]]) -> Timeline:
    """Return the drawing of lanes of bars."""
    start = min(bar.start for lane in lanes for bar in lane)
    end = max(bar.end for lane in lanes for bar in lane)
    scale = WIDTH / ((end - start) or 1.0)
    bars = [
        rectangle(bar, (bar.start - start) * scale, (bar.end - bar.start) * scale, row * (HEIGHT + GAP))
        for row, lane in enumerate(lanes)
        for bar in merged(lane, NARROW / scale)
    ]
    height = len(lanes) * (HEIGHT + GAP) - GAP
    svg = Markup('<svg viewBox="0 0 {} {}" height="{}" preserveAspectRatio="none" focusable="false">{}</svg>').format(
        f"{WIDTH:.0f}", height, height, Markup("").join(bars)
    )
    return Timeline(svg, [*dict.fromkeys(bar.kind for lane in lanes for bar in lane)], start, end)


def merged(lane: Iterable[Bar], narrow: float) -> list[Bar]:
    """Return a lane in which bars that are too narrow to be seen are part of the one before."""
    result: list[Bar] = []
    for bar in lane:
        last = result[-1] if result else None
        if last and bar.start - last.end < narrow and bar.end - bar.start < narrow:
            text = last.text if last.text.endswith(" …") else f"{last.text} …"
            result[-1] = last._replace(end=max(last.end, bar.end), text=text)
        else:
            result.append(bar)
    return result


def rectangle(bar: Bar, x: float, width: float, y: int) -> Markup:
    """Return a bar as an SVG element, at least wide enough to be seen."""
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" data-to="{}"><title>{}</title></rect>').format(
        bar.kind, f"{min(x, WIDTH - 1):.4g}", y, f"{max(width, 1.0):.4g}", bar.target, shown(bar.text)
    )

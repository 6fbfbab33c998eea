"""Say first what matters in a report: the verdict, the tiles, the list of what costs most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from torchdynamo.report.page.timeline import PHASES
from torchdynamo.report.page.wording import count, counted, microseconds, place, plural, seconds
from torchdynamo.report.screen import UNREMARKABLE

# How a tile or a row is rated: its glyph and its word, so that colour is not needed.
RATINGS = {"good": ("✓", "OK"), "look": ("▲", "look"), "bad": ("✕", "costly"), "plain": ("◷", "once")}
GRAVITY = {"error": 0, "fallback": 1, "limit": 2}  # which kind of problem is told first


class Tile(NamedTuple):
    """A tile: how it is rated, a large figure with its noun, and what it consists of."""

    rating: str
    figure: Markup
    noun: str
    details: Sequence[Markup]

    @property
    def glyph(self) -> str:
        return RATINGS[self.rating][0]

    @property
    def word(self) -> str:
        return RATINGS[self.rating][1]


class Trouble(NamedTuple):
    """A break or problem in the table of what costs most; numbers that are not known are None."""

    kind: str
    filename: str
    line: int
    function: str
    what: str  # source of a break, message of a problem
    text: str
    hint: str
    reason: str
    slug: str
    url: str
    per_call: float | None
    microseconds: float | None
    calls: int | None
    captures: int  # how often a capture ended there, or the problem was met
    chain: Sequence[Mapping[str, Any]]

    @property
    def where(self) -> str:
        return place(self.filename, self.line)


def worst(report: Mapping[str, Any]) -> list[Trouble]:
    """Return what costs most: functions that run eagerly, then the breaks, the costliest first."""
    problems = sorted(report["problems"], key=lambda each: GRAVITY.get(each["kind"], len(GRAVITY)))
    rows = [
        Trouble(
            each["kind"], each["filename"], each["line"], each["function"], each["text"], "", "",
            "", "", "", None, None, None, each["count"], (),
        )
        for each in problems
    ]  # fmt: skip
    return rows + [
        Trouble(
            "break", each["filename"], each["line"], each["function"], each["source"], each["text"], each["hint"],
            each["reason"], each["slug"], each["url"], each["per_call"], each["microseconds"], each["calls"],
            each["count"], each["chain"],
        )
        for each in report["breaks"]
    ]  # fmt: skip


def verdict(report: Mapping[str, Any], rows: Sequence[Trouble]) -> tuple[str, Markup]:
    """Return how the whole is rated, and one sentence: what to look at first."""
    totals = report["totals"]
    if rows:
        first = rows[0]
        text = Markup("Start with <a href='#worst-0'>{}</a>: {}.").format(first.where, what_happens(first))
        return ("bad" if first.kind != "break" else "look"), text
    if not totals["graphs"]:
        common = next(iter(skips(report)), None)
        text = Markup("Nothing was compiled.")
        if common is not None:
            text += Markup(" Most often: {} ({}).").format(common["title"], counted(common["count"], "function"))
        return "bad", text
    if report["recompiles"]:
        first = report["recompiles"][0]
        changes = Markup("{} is compiled again when {} changes").format(first["function"], first["source"])
        return "look", Markup("No graph ends early. <a href='#recompiles'>{}</a>.").format(changes)
    graphs = counted(totals["graphs"], "graph")
    return "good", Markup("Nothing to change: {}, no break, no recompile.").format(graphs)


def skips(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the reasons not to compile functions: those first that are about the program, the most common first."""
    return sorted(report["skips"], key=lambda each: (each["slug"] in UNREMARKABLE, -each["count"]))


def what_happens(row: Trouble) -> Markup:
    """Return the verdict's words for what costs most."""
    if row.kind != "break":
        return Markup("{} in {}").format(row.kind, row.function)
    if row.per_call is not None:
        often = Markup("{}x per call").format(count(row.per_call))
    else:
        often = counted(row.calls or 0, "time")
    cost = "" if row.microseconds is None else Markup(", {} each").format(microseconds(row.microseconds))
    return Markup("a graph ends there {}{}").format(often, cost)


def tiles(report: Mapping[str, Any]) -> list[Tile]:
    """Return the four tiles: graphs, breaks, recompiles and what runs eagerly, time to compile."""
    totals = report["totals"]
    spent = {phase: totals["seconds"].get(phase, 0.0) for phase in PHASES}
    most = max(spent, key=lambda phase: spent[phase])
    eager = totals["fallbacks"] + totals["limits"]
    per_call = totals["breaks_per_call"]
    often = [] if per_call is None or not totals["breaks"] else [Markup("{} per call").format(count(per_call))]
    return [
        Tile(
            "good" if totals["graphs"] else "bad",
            count(totals["graphs"]),
            noun(totals["graphs"], "graph"),
            [counted(totals["operators"], "operator"), counted(totals["graph_calls"], "call")],
        ),
        Tile(
            "look" if totals["breaks"] else "good",
            count(totals["breaks"]),
            noun(totals["breaks"], "graph break"),
            [*often, counted(len({each["line"] for each in report["breaks"]}), "line")] if totals["breaks"] else [],
        ),
        Tile(
            "bad" if eager else "look" if totals["recompiles"] else "good",
            count(totals["recompiles"]),
            noun(totals["recompiles"], "recompile"),
            [
                counted(totals["fallbacks"], "fallback"),
                counted(totals["limits"], "limit"),
                Markup("{} not compiled").format(count(totals["skips"])),
            ],
        ),
        Tile(
            "plain",
            seconds(spent[most]),
            f"compiling: {most}",
            [
                Markup("{} {}").format(phase, seconds(spent[phase]))
                for phase in PHASES
                if phase != most and spent[phase]
            ],
        ),
    ]


def noun(number: int, word: str) -> str:
    """Return a noun for a number of things."""
    return word if number == 1 else plural(word)

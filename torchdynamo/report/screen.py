"""Show a report on a terminal: the totals, what to change first, then the graphs and what they rest on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

WIDTH = 120
MOST_ROWS = 40
FIRST_ROWS = 5
UNREMARKABLE = frozenset({"stdlib", "torchdynamo", "torch-internals", "class-body", "module-body"})
"""Slugs of reasons for which nothing of the program stays Python that could be compiled."""
Row = Mapping[str, Any]


def screen(report: Mapping[str, Any], *, short: bool = False) -> RenderableType:
    """Return a report (`Report.to_dict()`) for a terminal, the costliest problems first.

    short: show the worst of each kind and leave out what is no problem, so that it fits on a screen.
    """
    parts: list[RenderableType] = [Text(heading(report), style="bold")]
    versions = [(row, each) for row in report["functions"] for each in row["versions"]]
    sections: list[tuple[str, Sequence[Any], Callable[[Any], RenderableType]]] = [
        ("Breaks, the costliest first", report["breaks"], _breaks),
        ("Failed, or at a limit", report["problems"], _problems),
        ("Recompiled", report["recompiles"], _recompiles),
        ("Graphs, those called most first", sorted(versions, key=_calls, reverse=True) if short else (), _graphs),
        ("Graphs", () if short else versions, _graphs),
        ("Symbols", [(each, symbol) for _, each in versions for symbol in each["symbols"]], _symbols),
        ("Not compiled", [row for row in report["skips"] if row["slug"] not in UNREMARKABLE], _skips),
        ("Guards", () if short else _guards_by_object(versions), _guards),
    ]
    most = FIRST_ROWS if short else MOST_ROWS
    for title, rows, shown in sections:
        if rows:
            parts += [Text(f"\n{title}"), Padding(shown(rows[:most]), (0, 2))]
            if len(rows) > most:
                parts.append(Text(f"  ... and {len(rows) - most} more"))
    return Group(*parts)


def as_text(shown: RenderableType) -> str:
    """Return something to be shown as plain text, without color."""
    console = Console(width=WIDTH, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(shown)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def heading(report: Mapping[str, Any]) -> str:
    """Return the totals of a report as one line."""
    totals = report["totals"]
    guards = sum(guard["count"] for row in report["functions"] for each in row["versions"] for guard in each["guards"])
    seconds = sum(totals["seconds"].values())
    words = [
        counted(totals["graphs"], "graph"),
        counted(totals["operators"], "operator"),
        counted(totals["graph_calls"], "graph call"),
        counted(totals["breaks"], "break"),
        counted(guards, "guard"),
        f"{seconds:.3f} s",
    ]
    return f"{report['title']}: {', '.join(words)}"


def counted(number: int, what: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def where(row: Row) -> str:
    """Return the file's name and the line of a row."""
    return f"{Path(row['filename']).name}:{row['line']}"


def _breaks(rows: Sequence[Row]) -> RenderableType:
    parts: list[RenderableType] = []
    for number, row in enumerate(rows, 1):
        of = f" of {row['of']}" if row["of"] else ""
        often = "" if row["per_call"] is None else f"   x{row['per_call']:.3g} per call{of}"
        costs = "" if row["microseconds"] is None else f"   at most {row['microseconds']:,.0f} us each"
        head = f"{number}  {where(row)} in {row['function']}{often}{costs}   [{row['reason']} {row['slug']}]"
        lines = [head, *(f"     {row[name]}" for name in ("source", "text", "hint") if row[name])]
        lines += [f"     called from {where(each)} in {each['function']}" for each in reversed(row["chain"])]
        parts.append(Text("\n".join(lines)))
    return Group(*parts)


def _problems(rows: Sequence[Row]) -> RenderableType:
    return Group(*(Text(f"{row['kind']}  {where(row)}   {from_here(row['text'])}") for row in rows))


def _recompiles(rows: Sequence[Row]) -> RenderableType:
    return Group(*(Text("\n    ".join(filter(None, [from_here(row["text"]), row["hint"]]))) for row in rows))


def from_here(text: str) -> str:
    """Return a text with the paths in it as they are from the current folder."""
    return text.replace(f"{Path.cwd()}{os.sep}", "")


def _graphs(rows: Sequence[tuple[Row, Row]]) -> Table:
    table = _table("graph", "place", "operators", "calls", "guards", "seconds", "backend", "ends")
    for function, each in rows:
        place = f"{Path(function['filename']).name}:{each['line']}"
        calls = "-" if each["calls"] is None else str(each["calls"])
        guards, seconds = sum(guard["count"] for guard in each["guards"]), sum(each["seconds"].values())
        ends = "" if each["ends"] is None else f"line {each['ends']['line']}"
        counts = (str(each["operators"]), calls, str(guards), f"{seconds:.3f}")
        table.add_row(each["graph"], place, *counts, each["backend"], ends)
    return table


def _calls(row: tuple[Row, Row]) -> int:
    return row[1]["calls"] or 0


def _symbols(rows: Sequence[tuple[Row, Row]]) -> Table:
    table = _table("graph", "symbol", "is", "bounds")
    for version, symbol in rows:
        table.add_row(version["graph"], symbol["name"], symbol["source"], bounds(symbol["minimum"], symbol["maximum"]))
    return table


def bounds(least: int | None, most: int | None) -> str:
    """Return the values that a symbol can have, in words."""
    if least is None and most is None:
        return "any"
    if most is None:
        return f"at least {least}"
    return f"at most {most}" if least is None else f"{least} to {most}"


def _skips(rows: Sequence[Row]) -> RenderableType:
    lines = []
    for row in rows:
        shown = ", ".join(f"{name} ({Path(place[:-1]).name})" for name, _, place in _split(row["functions"][:3]))
        more = f", and {row['count'] - 3} more" if row["count"] > 3 else ""
        lines.append(f"{row['reason']} {row['slug']}: {shown}{more}")
    return Text("\n".join(lines))


def _split(functions: Sequence[str]) -> list[tuple[str, str, str]]:
    return [each.partition(" (") for each in functions]


def _guards_by_object(versions: Sequence[tuple[Row, Row]]) -> list[Row]:
    """Return a row for each object that graphs guard, with what all of them together guard of it."""
    rows: dict[str, dict[str, Any]] = {}
    for _, version in versions:
        for guard in version["guards"]:
            row = rows.setdefault(guard["object"], {**guard, "count": 0, "words": 0, "kinds": {}, "graphs": 0})
            row["count"], row["words"] = row["count"] + guard["count"], row["words"] + guard["words"]
            row["graphs"] += 1
            for kind, count in guard["kinds"].items():
                row["kinds"][kind] = row["kinds"].get(kind, 0) + count
    return sorted(rows.values(), key=lambda row: (-row["words"], -row["count"]))


def _guards(rows: Sequence[Row]) -> Table:
    table = _table("object", "guards", "words per hit", "graphs", "kinds")
    for row in rows:
        kinds = ", ".join(kind if count == 1 else f"{kind} x{count}" for kind, count in row["kinds"].items())
        table.add_row(row["object"], str(row["count"]), str(row["words"]), str(row["graphs"]), kinds)
    return table


def _table(*columns: str) -> Table:
    table = Table(*columns, box=None, pad_edge=False, show_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    return table

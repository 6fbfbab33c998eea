"""The command `diff`: compare two saved reports, and fail where something of a kind appeared."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from torchdynamo.report.difference import APPEARED, CHANGED, DISAPPEARED, FAILURES, SAME, appeared, difference
from torchdynamo.report.saving import load
from torchdynamo.report.screen import FIRST_ROWS, UNREMARKABLE, counted, where

SIGNS = {APPEARED: "+", CHANGED: "~", DISAPPEARED: "-"}
STYLES = {APPEARED: "red", CHANGED: "yellow", DISAPPEARED: "green"}
TELLING = 0.1
"""Seconds: a function is listed if compiling it takes so much more or less, and half as much again."""
Row = dict[str, Any]


def main(given: Sequence[str]) -> int:
    """Compare two saved reports. Returns 0, 1 where something appeared that `--fail-on` names, 2 for a wrong file."""
    parser = argparse.ArgumentParser(prog="python -m torchdynamo diff", description=__doc__)
    parser.add_argument("before", help="a report, as TORCHDYNAMO_REPORT or `run --report` writes it")
    parser.add_argument("after", help="another report of the same program")
    parser.add_argument(
        "--fail-on",
        metavar="WHAT",
        default="",
        help=f"exit with 1 where any of these appeared: {','.join(FAILURES)}",
    )
    parser.add_argument("--json", action="store_true", help="print all that was compared as JSON")
    chosen = parser.parse_args(given)
    words = [word.strip() for word in chosen.fail_on.split(",") if word.strip()]
    kinds = [word if word in FAILURES else f"{word}s" for word in words]  # "fallback" reads as well as "fallbacks"
    for kind in kinds:
        if kind not in FAILURES:
            parser.error(f"--fail-on takes {', '.join(FAILURES)}, not {kind.removesuffix('s')!r}")
    try:
        found = difference(load(chosen.before).to_dict(), load(chosen.after).to_dict())
    except (OSError, ValueError) as error:
        print(f"python -m torchdynamo diff: {error}", file=sys.stderr)
        return 2
    if chosen.json:
        print(json.dumps(found, indent=1))
    else:
        Console().print(screen(found))
    failed = [kind for kind in kinds if appeared(found, kind)]
    for kind in failed:
        print(f"python -m torchdynamo diff: {counted(len(appeared(found, kind)), kind[:-1])} appeared", file=sys.stderr)
    return 1 if failed else 0


def screen(found: Row) -> RenderableType:
    """Return what `difference` found for a terminal, of each kind what appeared first."""
    heading = f"{found['before']} -> {found['after']}: " + (
        "what was compiled differs" if is_different(found) else "the same was compiled"
    )
    parts: list[RenderableType] = [Text(heading, style="bold")]
    if found["environment"]:
        parts.append(Text(", ".join(map(_value, found["environment"]))))
    parts += [Text(), totals(found["totals"])]
    skips = [row for row in found["skips"] if row["slug"] not in UNREMARKABLE]
    sections: list[tuple[str, str, Sequence[Row], Callable[[Row], list[str]]]] = [
        ("Breaks", "break", found["breaks"], _break),
        ("Recompiled", "reason to recompile", found["recompiles"], _recompile),
        ("Failed, or at a limit", "problem", found["problems"], _problem),
        ("Graphs, by function", "function", found["functions"], _function),
        ("Not compiled", "function", skips, _skip),
    ]
    for title, noun, rows, shown in sections:
        told = [row for row in rows if row["change"] != SAME]
        if told:
            parts += [_counts(title, noun, rows), Padding(_rows(told, shown), (0, 2))]
    if found["operators"]:
        shown_operators = ", ".join(map(_value, found["operators"][: 4 * FIRST_ROWS]))
        parts += [Text("\nOperators in graphs"), Padding(Text(shown_operators), (0, 2))]
    slower = [row for row in found["functions"] if takes_another_time(row)]
    if slower:
        lines = [f"{where(row)} in {row['function']}: {_seconds(row)}" for row in slower[:FIRST_ROWS]]
        parts += [Text("\nSeconds to compile"), Padding(Text("\n".join(lines)), (0, 2))]
    return Group(*parts)


def is_different(found: Row) -> bool:
    """Tell whether anything appeared, disappeared or changed but for times."""
    kinds = ("breaks", "recompiles", "problems", "functions", "skips")
    return bool(found["operators"]) or any(row["change"] != SAME for kind in kinds for row in found[kind])


def takes_another_time(row: Row) -> bool:
    """Tell whether the compilation of a function that both reports have takes clearly more or less time."""
    if row["before"] is None or row["after"] is None:
        return False
    less, more = sorted((row["before"]["seconds"], row["after"]["seconds"]))
    return bool(more - less >= TELLING and more >= 1.5 * less)


def totals(rows: Sequence[Row]) -> Table:
    """Return the totals of both reports side by side."""
    table = Table("", "before", "after", "change", box=None, pad_edge=False, show_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        before, after = row["before"] or 0, row["after"] or 0
        if before or after:
            change = "" if before == after else _number(after - before, sign="+")
            name = row["name"].removeprefix("seconds.").replace("_", " ")
            unit = ", seconds" if row["name"].startswith("seconds.") else ""
            table.add_row(f"{name}{unit}", _number(before), _number(after), change)
    return table


def _number(value: float, sign: str = "") -> str:
    return f"{value:{sign}.3f}" if isinstance(value, float) and value != int(value) else f"{int(value):{sign},}"


def _value(row: Row) -> str:
    before, after = ("none" if each is None else str(each) for each in (row["before"], row["after"]))
    return f"{row['name']} {before} -> {after}"


def _counts(title: str, noun: str, rows: Sequence[Row]) -> Text:
    numbers = {change: sum(row["change"] == change for row in rows) for change in (*SIGNS, SAME)}
    words = [f"{number} {change}" for change, number in numbers.items() if number and change != SAME]
    same = [f"{counted(numbers[SAME], noun)} the same"] if numbers[SAME] else []
    return Text(f"\n{title}: {', '.join(words + same)}")


def _rows(rows: Sequence[Row], shown: Callable[[Row], list[str]]) -> RenderableType:
    parts: list[RenderableType] = []
    for row in rows[:FIRST_ROWS]:
        first, *rest = shown(row)
        parts.append(Text(f"{SIGNS[row['change']]} {first}", style=STYLES[row["change"]]))
        parts += [Padding(Text(line), (0, 0, 0, 4)) for line in rest if line]
    if len(rows) > FIRST_ROWS:
        parts.append(Text(f"... and {len(rows) - FIRST_ROWS} more: --json has all"))
    return Group(*parts)


def _place(row: Row) -> str:
    moved = f" (was line {row['line_before']})" if row["line_before"] not in (None, row["line"]) else ""
    return f"{where(row)}{moved} in {row['function']}"


def _both(row: Row, shown: Callable[[Row], str]) -> str:
    """Return figures of both reports with an arrow, or once if they read the same."""
    texts = [shown(each) for each in (row["before"], row["after"]) if each is not None]
    return " -> ".join(dict.fromkeys(text for text in texts if text))


def _break(row: Row) -> list[str]:
    often = _both(row, lambda each: "" if each["per_call"] is None else f"x{each['per_call']:.3g} per call")
    head = "   ".join(part for part in (_place(row), often, f"[{row['what']}]") if part)
    return [head, row["source"], *((row["text"], row["hint"]) if row["change"] == APPEARED else ())]


def _recompile(row: Row) -> list[str]:
    times = _both(row, lambda each: counted(each["times"], "time"))
    return [
        f"{_place(row)}: {row['what']}: {row['old']} -> {row['new']}, {times}",
        row["hint"] if row["change"] == APPEARED else "",
    ]


def _problem(row: Row) -> list[str]:
    return [f"{row['what']}  {_place(row)}   {row['text']}"]


def _function(row: Row) -> list[str]:
    graphs = _both(row, lambda each: counted(each["graphs"], "graph"))
    operators = _both(row, lambda each: counted(each["operators"], "operator"))
    return [f"{_place(row)}: {graphs}, {operators}"]


def _skip(row: Row) -> list[str]:
    if row["filename"]:
        return [f"{_place(row)}   [{row['what']}]"]
    return [f"{row['what']}: {_both(row, lambda each: counted(each['functions'], 'function'))}"]


def _seconds(row: Row) -> str:
    return f"{row['before']['seconds']:.2f} -> {row['after']['seconds']:.2f} s"

"""Compare two reports: which breaks, recompiles, graphs and skips appeared, disappeared or changed between them.

`difference` returns plain data, ready for JSON. A row of one report and a row of the other are the same thing if
their function and their reason are the same and they lie on the same line of source: where both reports have the
line's text that decides, so that lines may move, and where they have not, the line's number does. Another checkout of
the same files counts as the same files, and the program as the program whatever its file is called.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

FORMAT = 1
APPEARED, DISAPPEARED, CHANGED, SAME = "appeared", "disappeared", "changed", "same"
FAILURES = ("breaks", "recompiles", "fallbacks", "limits")
"""Kinds that `appeared` accepts."""
PHASES = ("capture", "graph", "backend", "code", "guards")
_SKIPPED = re.compile(r"(?P<function>.*) \((?P<filename>.*):(?P<line>\d+)\)")  # as the lists of a report have them
Row = dict[str, Any]


class Item(NamedTuple):
    """A row of a report: what it is about, where it lies, its figures, and what else is told of it."""

    what: str  # the reason of a break, what changed for a recompile, ...
    filename: str
    name: str  # what a file is called in any folder; "" for the program, whatever that is called
    function: str
    line: int
    text: str  # what tells the line from others wherever it lies; "" if nothing is known
    figures: Mapping[str, Any]  # the row has changed where these differ
    measured: Mapping[str, Any]  # figures that are others in each run
    facts: Mapping[str, Any]


Key = tuple[Any, ...]
# From the strictest to the loosest: in each round, what has equal keys and was not matched so far is matched in order.
ROUNDS: Sequence[Callable[[Item], Key]] = (
    lambda item: (item.what, item.function, item.filename, item.line, item.text),
    lambda item: (item.what, item.function, item.filename, item.text or item.line),
    lambda item: (item.what, item.function, item.name, item.line, item.text),
    lambda item: (item.what, item.function, item.name, item.text or item.line),
    lambda item: (item.what, item.function, item.filename, item.line),
    lambda item: (item.what, item.function, item.name, item.line),
)


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what differs between two reports, each as `Report.to_dict()` returns it.

    Rows of `breaks`, `recompiles`, `problems`, `functions` and `skips` have a `change` (appeared, disappeared, changed
    or same), a place, and `before` and `after`: the figures in either report, None where the row is not there.
    """
    return {
        "format": FORMAT,
        "before": before["title"],
        "after": after["title"],
        "environment": changed_values(_flat(before["environment"]), _flat(after["environment"])),
        "totals": compared_values(_totals(before), _totals(after)),
        "breaks": compared(_breaks(before), _breaks(after)),
        "recompiles": compared(_recompiles(before), _recompiles(after)),
        "problems": compared(_problems(before), _problems(after)),
        "functions": compared(_functions(before), _functions(after)),
        "operators": _changed_operators(before, after),
        "skips": compared(*_skips(before, after)),
    }


def appeared(found: Mapping[str, Any], kind: str) -> list[Row]:
    """Return the rows of a kind of FAILURES that are new; of recompiles those too that happened more often."""
    if kind == "breaks":
        return [row for row in found["breaks"] if row["change"] == APPEARED]
    if kind == "recompiles":
        return [row for row in found["recompiles"] if _figure(row["after"], "times") > _figure(row["before"], "times")]
    return [row for row in found["problems"] if row["change"] == APPEARED and f"{row['what']}s" == kind]


def _figure(figures: Mapping[str, Any] | None, name: str) -> Any:
    return 0 if figures is None else figures[name]


def compared(before: Sequence[Item], after: Sequence[Item]) -> list[Row]:
    """Return a row for each item of either side: what appeared first, then what changed, disappeared, is the same."""
    pairs = matched(before, after)
    partners = {id(new) for _, new in pairs}
    known = {id(old) for old, _ in pairs}
    rows = [_row(APPEARED, None, new) for new in after if id(new) not in partners]
    rows += [_row(CHANGED, old, new) for old, new in pairs if old.figures != new.figures]
    rows += [_row(DISAPPEARED, old, None) for old in before if id(old) not in known]
    return rows + [_row(SAME, old, new) for old, new in pairs if old.figures == new.figures]


def matched(before: Sequence[Item], after: Sequence[Item]) -> list[tuple[Item, Item]]:
    """Return the pairs of items that are the same thing in both reports."""
    pairs: list[tuple[Item, Item]] = []
    left, right = list(before), list(after)
    for key in ROUNDS:
        candidates: dict[Key, list[Item]] = defaultdict(list)
        for item in right:
            candidates[key(item)].append(item)
        unmatched = []
        for item in left:
            partner = next((each for each in candidates[key(item)] if not _contradict(item, each)), None)
            if partner is None:
                unmatched.append(item)
            else:
                candidates[key(item)].remove(partner)
                pairs.append((item, partner))
        partners = {id(partner) for _, partner in pairs}
        left, right = unmatched, [item for item in right if id(item) not in partners]
    return pairs


def _contradict(old: Item, new: Item) -> bool:
    """Tell whether two items that may lie on one line are of lines with different texts."""
    return bool(old.text and new.text and old.text != new.text)


def _row(change: str, old: Item | None, new: Item | None) -> Row:
    shown = new or old
    assert shown is not None
    return {
        "change": change,
        "what": shown.what,
        "function": shown.function,
        "filename": shown.filename,
        "line": shown.line,
        "line_before": None if old is None else old.line,
        **shown.facts,
        "before": None if old is None else {**old.figures, **old.measured},
        "after": None if new is None else {**new.figures, **new.measured},
    }


def compared_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Row]:
    """Return a row (name, before, after) for each name of either side; None where a side has it not."""
    return [
        {"name": name, "before": before.get(name), "after": after.get(name)}
        for name in dict.fromkeys([*before, *after])
    ]


def changed_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Row]:
    """Return the rows of `compared_values` whose sides differ."""
    return [row for row in compared_values(before, after) if row["before"] != row["after"]]


# ---- the rows of a report as items ---------------------------------------------------------------------------------


def _name(report: Mapping[str, Any], filename: str) -> str:
    name = os.path.basename(filename)
    return "" if name == report["title"] else name


def _totals(report: Mapping[str, Any]) -> dict[str, Any]:
    totals = dict(report["totals"])
    seconds = totals.pop("seconds")
    return {**totals, **{f"seconds.{phase}": seconds.get(phase, 0.0) for phase in PHASES}}


def _flat(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return versions, settings and variables under names of their own."""
    nested = ("settings", "variables")
    flat = {name: value for name, value in environment.items() if name not in nested}
    return flat | {name: value for each in nested for name, value in environment[each].items()}


def _breaks(report: Mapping[str, Any]) -> list[Item]:
    return [
        Item(
            f"{row['reason']} {row['slug']}".strip(),
            row["filename"],
            _name(report, row["filename"]),
            row["function"],
            row["line"],
            row["source"],
            {"per_call": _rounded(row["per_call"])},
            {"calls": row["calls"], "microseconds": row["microseconds"]},
            {name: row[name] for name in ("source", "text", "hint")},
        )
        for row in report["breaks"]
    ]


def _rounded(value: float | None) -> float | None:
    """Return a number with three digits: a call more in a long run is no change."""
    return None if value is None else float(f"{value:.3g}")


def _recompiles(report: Mapping[str, Any]) -> list[Item]:
    """Return an item for each thing that a function was compiled again for."""
    grouped: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    for row in report["recompiles"]:
        grouped[row["filename"], row["function"], row["line"], row["source"]].append(row)
    return [
        Item(
            source,
            filename,
            _name(report, filename),
            function,
            line,
            function,  # told at the function's beginning, wherever that lies
            {"times": len(rows)},
            {},
            {"old": rows[0]["old"], "new": rows[-1]["new"], "hint": rows[-1]["hint"]},
        )
        for (filename, function, line, source), rows in grouped.items()
    ]


def _problems(report: Mapping[str, Any]) -> list[Item]:
    return [
        Item(
            row["kind"],
            row["filename"],
            _name(report, row["filename"]),
            row["function"],
            row["line"],
            row["function"],
            {},
            {"count": row["count"]},
            {"text": row["text"]},
        )
        for row in report["problems"]
    ]


def _functions(report: Mapping[str, Any]) -> list[Item]:
    return [
        Item(
            "function",
            row["filename"],
            _name(report, row["filename"]),
            row["function"],
            row["line"],
            row["function"],
            {"graphs": len(row["versions"]), "operators": sum(each["operators"] for each in row["versions"])},
            {
                "calls": sum(each["calls"] or 0 for each in row["versions"]),
                "seconds": sum(sum(each["seconds"].values()) for each in row["versions"]),
            },
            {},
        )
        for row in report["functions"]
    ]


def _changed_operators(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Row]:
    """Return the operators of which there are more or fewer; none where a report does not know those of all graphs."""
    found = [_operators(report) for report in (before, after)]
    known = all(
        sum(operators.values()) == report["totals"]["operators"]
        for operators, report in zip(found, (before, after), strict=True)
    )
    return changed_values(*found) if known else []


def _operators(report: Mapping[str, Any]) -> dict[str, int]:
    """Return how often each operator is in the graphs that are in use."""
    versions = (version for row in report["functions"] for version in row["versions"])
    return dict(Counter(node["operator"] for version in versions for node in version["nodes"]))


def _skips(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[list[Item], list[Item]]:
    """Return an item for each function that stayed Python; one for each reason of which a report lists only some."""
    cut = {
        row["title"] for report in (before, after) for row in report["skips"] if row["count"] > len(row["functions"])
    }
    return [*_skips_of(before, cut)], [*_skips_of(after, cut)]


def _skips_of(report: Mapping[str, Any], cut: Iterable[str]) -> list[Item]:
    items = []
    for row in report["skips"]:
        what, facts = f"{row['reason']} {row['slug']}".strip(), {"slug": row["slug"]}
        if row["title"] in cut:
            items.append(Item(what, "", "", "", 0, what, {"functions": row["count"]}, {}, facts))
            continue
        for listed in row["functions"]:
            place = _SKIPPED.fullmatch(listed)
            function, filename, line = place.groups() if place else (listed, "", "0")
            items.append(Item(what, filename, _name(report, filename), function, int(line), function, {}, {}, facts))
    return items

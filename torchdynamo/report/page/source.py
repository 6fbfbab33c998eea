"""Show the program's source, file by file: which lines are in a graph, which stay Python, where graphs end."""

from __future__ import annotations

import ast
import linecache
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, String

from torchdynamo.report.page.wording import place, visible
from torchdynamo.report.redact import without_literals

AROUND = 2  # lines shown before and after one that has a mark
MOST_LINES = 300  # of one file
MOST_OF_ALL = 2500  # of all files
LONGEST_LINE = 240
RANK = {"graph": 1, "python": 2, "break": 3}  # which mark of a line is shown
CLASSES = (
    (Keyword, "tk"),
    (String, "ts"),
    (Comment, "tc"),
    (Number, "tn"),
    (Name.Function, "tf"),
    (Name.Decorator, "tf"),
)


class Line(NamedTuple):
    """A line as the page shows it; `mark` is graph, python, break or empty, `breaks` the report's rows about it."""

    number: int
    mark: str
    code: Markup
    breaks: Sequence[Mapping[str, Any]]


class File(NamedTuple):
    """A file: where it is, what is wrong with its source, its strip, and the stretches of lines that are shown."""

    at: int  # among the files of the page
    filename: str
    missing: str
    strip: Markup
    stretches: list[list[Line]]
    graphs: int  # lines in graphs
    breaks: int  # lines that end graphs


class Marks:
    """Marks of the lines of one source file."""

    def __init__(self) -> None:
        self.marks: dict[int, str] = {}
        self.breaks: dict[int, list[Mapping[str, Any]]] = {}
        self.starts: dict[int, str] = {}  # first lines of functions -> the mark of their bodies, or nothing

    def mark(self, line: int, kind: str) -> None:
        """Mark a line, unless a stronger mark is there."""
        if line > 0 and RANK[kind] > RANK.get(self.marks.get(line, ""), 0):
            self.marks[line] = kind


def files(report: Mapping[str, Any], *, redact: bool = False) -> list[File]:
    """Return the files that the report mentions, those with breaks first. `redact` hides string literals in them."""
    known = marked_lines(report)
    order = sorted(known, key=lambda name: (-len(known[name].breaks), -len(known[name].marks), name))
    result, left = [], MOST_OF_ALL
    for index, name in enumerate(order):
        file = one_file(index, name, known[name], min(left, MOST_LINES), redact)
        left -= sum(map(len, file.stretches))
        result.append(file)
    return result


def marked_lines(report: Mapping[str, Any]) -> dict[str, Marks]:
    """Return what the report says about lines, by the names of files."""
    known: dict[str, Marks] = {}
    for function in report["functions"]:
        known.setdefault(function["filename"], Marks()).starts.setdefault(function["line"], "")
        for version in function["versions"]:
            for node in version["nodes"]:
                if node["filename"] and node["line"]:
                    known.setdefault(node["filename"], Marks()).mark(node["line"], "graph")
    for each in report["breaks"]:
        marks = known.setdefault(each["filename"], Marks())
        marks.mark(each["line"], "break")
        marks.breaks.setdefault(each["line"], []).append(each)
    for each in report["problems"]:
        known.setdefault(each["filename"], Marks()).starts[each["line"]] = "python"
    by_place = {place(name, None): marks for name, marks in known.items()}
    for skip in report["skips"]:
        for text in skip["functions"]:
            found = re.fullmatch(r".* \((.+):(\d+)\)", text)
            named = found and (known.get(found[1]) or by_place.get(found[1]))
            if found and named:
                named.starts[int(found[2])] = "python"
    return known


def one_file(index: int, filename: str, marks: Marks, most: int, redact: bool) -> File:
    """Return a file with at most a number of its lines."""
    lines, missing = read(filename)
    functions = [*bodies(lines, marks)]
    for body, kind in functions:
        for number in body:
            if kind and lines[number - 1].strip():
                marks.mark(number, kind)
    if lines and changed(lines, marks):
        missing = "The file has changed since it ran: marks may be at other lines."
    inside = {number for number in marks.marks if number <= len(lines)}
    wanted = inside.union(*(range(number - AROUND, number + AROUND + 1) for number in inside))
    wanted.update(number for body, _ in functions for number in body)
    numbers = sorted(number for number in wanted if 0 < number <= len(lines))
    if len(numbers) > most:
        near = [each for each in numbers if any(abs(each - at) <= AROUND for at in marks.breaks)]
        numbers = sorted({*near[:most], *numbers[: max(0, most - len(near))]})
    codes = colored(lines[: max(numbers, default=0)], redact)
    stretches = [stretch_of(run, codes, marks) for run in runs(numbers)]
    counts = [sum(kind == which for kind in marks.marks.values()) for which in ("graph", "break")]
    return File(index, filename, missing, strip(index, marks, len(lines)), stretches, *counts)


def read(filename: str) -> tuple[list[str], str]:
    """Return the lines of a Python file, and what is wrong with them.

    Files that are no Python source are not opened: a report may come from elsewhere and name any file.
    """
    virtual = filename.startswith("<") and filename.endswith(">")
    if not virtual and not filename.endswith((".py", ".pyw")):
        return [], "This is no Python file, and is not shown."
    lines = linecache.getlines(filename)
    if not lines:
        return [], "The source is not here."
    entry = linecache.cache.get(filename)
    try:
        now = os.stat(filename)
    except (OSError, ValueError):
        return lines, "" if virtual else "The file is gone since it was read."
    if entry and len(entry) == 4 and entry[1] is not None and (entry[0], entry[1]) != (now.st_size, now.st_mtime):
        return lines, "The file has changed since it was read: this is what it was."
    return lines, ""


def changed(lines: Sequence[str], marks: Marks) -> bool:
    """Return whether a file cannot be the one that the report is about."""
    if marks.marks and max(marks.marks) > len(lines):
        return True
    return any(
        each["source"].strip() and not lines[line - 1].strip().startswith(each["source"].strip().split("\n")[0][:80])
        for line, breaks in marks.breaks.items()
        for each in breaks
        if 0 < line <= len(lines)
    )


def bodies(lines: Sequence[str], marks: Marks) -> Iterator[tuple[range, str]]:
    """Yield the lines of each function of the report, and the mark of its body."""
    if not marks.starts or not lines:
        return
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
            first = min(node.lineno, *(each.lineno for each in decorators), node.lineno)
            start = next((each for each in (first, node.lineno) if each in marks.starts), None)
            if start is not None:
                yield range(first, (node.end_lineno or first) + 1), marks.starts[start]


def runs(numbers: Sequence[int]) -> Iterator[list[int]]:
    """Yield the runs of numbers that follow each other."""
    run: list[int] = []
    for number in numbers:
        if run and number != run[-1] + 1:
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def colored(lines: Sequence[str], redact: bool) -> list[Markup]:
    """Return lines of source with colors. They begin where the file does: elsewhere might be the midst of a string."""
    texts = [line.rstrip("\r\n") for line in lines]
    if redact:
        texts = "\n".join(without_strings(texts)).split("\n")
    codes, room = [Markup("")], LONGEST_LINE
    for kind, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens("\n".join(map(visible, texts))):
        name = next((name for parent, name in CLASSES if kind in parent), "")
        for index, part in enumerate(text.split("\n")):
            if index:
                codes.append(Markup(""))
                room = LONGEST_LINE
            if part and room:
                cut = part if len(part) <= room else part[:room] + " …"
                codes[-1] += Markup('<span class="{}">{}</span>').format(name, cut) if name else Markup.escape(cut)
                room = max(room - len(part), 0)
    return codes


def stretch_of(numbers: Sequence[int], codes: Sequence[Markup], marks: Marks) -> list[Line]:
    """Return a stretch of a file's lines with what is known of them."""
    return [
        Line(number, marks.marks.get(number, ""), codes[number - 1], marks.breaks.get(number, ())) for number in numbers
    ]


def without_strings(texts: Sequence[str]) -> list[str]:
    """Return lines of source whose string literals and comments are hidden, those of several lines too."""
    result = [""]
    for kind, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens("\n".join(texts)):
        for index, part in enumerate(text.split("\n")):
            if index:
                result.append("")
            result[-1] += "…" if part.strip() and (kind in String or kind in Comment) else part
    return [without_literals(re.sub("…+", "…", each)) for each in result]


def strip(index: int, marks: Marks, length: int) -> Markup:
    """Return a file's heat strip: the whole file as one bar, with its marks."""
    total = max(length, *marks.marks, 1) if marks.marks else max(length, 1)
    parts = []
    for kind in RANK:  # the stronger marks are drawn over the others
        for run in runs(sorted(line for line, mark in marks.marks.items() if mark == kind)):
            x, width = (run[0] - 1) / total * 1000, max(len(run) / total * 1000, 3)
            parts.append(
                Markup('<rect class="{}" x="{}" y="0" width="{}" height="10" data-to="{}"/>').format(
                    kind, f"{min(x, 1000 - width):.1f}", f"{width:.1f}", f"f{index}-{run[0]}"
                )
            )
    return Markup(
        '<svg class="strip" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
    ).format(Markup("").join(parts))

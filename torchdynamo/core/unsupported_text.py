"""The message of an `Unsupported`: the user's lines, with carets, and a reason of the table."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from torchdynamo.core.reasons import hint, message, pointer, title

Line = tuple[str, "int | None", str, str]  # file, line, function, source line


def unsupported_text(
    reason: str,
    fields: Mapping[str, Any],
    filename: str,
    line: int | None,
    function: str,
    source_line: str,
    column: int | None,
    end_column: int | None,
    callers: Sequence[Line] = (),
    inside: Sequence[Line] = (),
) -> str:
    """Return the message of an `Unsupported`: title, place with a caret, why, what to write instead, id.

    callers: calls that led there, outermost first; inside: calls below, in libraries, that lead to what ended the
    graph. Columns count bytes of the UTF-8 line, as in code objects.
    """
    lines = [title(reason, **fields), "Processing original code:"]
    lines += told(callers)
    lines.append(place(filename, line, function))
    if source_line.strip():
        lines += quote(source_line, column, end_column)
    if inside:
        lines += ["In the library that is called there:", *told(inside)]
    lines += [
        "",
        f"Why: {message(reason, **fields)}",
        f"Instead: {hint(reason, **fields)}",
        f"Reason: {pointer(reason)}",
    ]
    return "\n".join(lines)


def told(calls: Sequence[Line]) -> list[str]:
    """Return the places of calls with their source lines, as tracebacks have them."""
    lines = []
    for filename, line, function, source_line in calls:
        lines.append(place(filename, line, function))
        if source_line.strip():
            lines.append(f"    {source_line.strip()}")
    return lines


def place(filename: str, line: int | None, function: str) -> str:
    """Return a line that names a place in a program, as tracebacks do."""
    return f'  File "{filename}", line {"?" if line is None else line}, in {function}'


def quote(source_line: str, column: int | None, end_column: int | None) -> list[str]:
    """Return the user's line and carets under the expression.

    All of the line is marked where columns are unknown, and all from `column` where the expression spans several lines.
    """
    raw = source_line.encode()
    text = source_line.strip()
    begin = len(raw) - len(source_line.lstrip().encode())  # indentation in bytes
    start = begin if column is None else max(column, begin)
    stop = begin + len(text.encode()) if end_column is None or column is None else end_column
    before = raw[begin:start].decode(errors="replace")
    marked = raw[start:stop].decode(errors="replace").rstrip()
    pad = "".join("\t" if char == "\t" else " " * _width(char) for char in before)
    return [f"    {text}", f"    {pad}{'^' * max(1, sum(map(_width, marked)))}"]


def _width(char: str) -> int:
    """Return how many terminal columns a character takes: wide ones two, combining ones none."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1

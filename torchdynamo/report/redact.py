"""Hide the program's own strings and values in a report, so that it can be shown to others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

HIDDEN = "(hidden)"
# A string literal, also one that was cut before its end. The apostrophe of a word ("tensor's") begins none.
LITERAL = re.compile(r"""(?<!\w)([rbuf]{0,2})('(?:[^'\\\n]|\\.)*(?:'|$)|"(?:[^"\\\n]|\\.)*(?:"|$))""", re.I | re.M)
PLAIN = re.compile(r"[-+\d.,()\[\] ]*|True|False|None")  # numbers, shapes and truth values


def redacted(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a report without string literals, without changed values, and without variables' contents.

    Numbers, shapes, names, operators and places stay. `report` is what `Report.to_dict()` returns.
    """
    values = sorted(
        {without_literals(each) for each in changed_values(report) if not PLAIN.fullmatch(each)}, key=len, reverse=True
    )
    either = "|".join(map(re.escape, values))
    pattern = re.compile(rf"(?<!\w)(?:{either})(?!\w)") if values else None

    def hide(text: str) -> str:
        shorter = without_literals(text)
        return pattern.sub(HIDDEN, shorter) if pattern else shorter

    copy = each_string(report, hide)
    copy["environment"] = {
        **copy["environment"],
        "variables": dict.fromkeys(report["environment"]["variables"], HIDDEN),
    }
    for each in copy["recompiles"]:
        each.update({key: HIDDEN for key in ("old", "new") if not PLAIN.fullmatch(each[key])})
    return copy


def without_literals(text: str) -> str:
    """Return a text with the contents of all string literals in it replaced by an ellipsis."""
    return LITERAL.sub(r"\1'…'", text)


def changed_values(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the old and new values of all recompiles."""
    for each in report["recompiles"]:
        yield from (each["old"], each["new"])


def each_string(value: Any, change: Callable[[str], str]) -> Any:
    """Return a copy of a JSON value whose strings are changed by a function; keys of objects stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: each_string(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [each_string(item, change) for item in value]
    return value

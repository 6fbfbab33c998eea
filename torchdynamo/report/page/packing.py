"""Pack a report's JSON for the page: tables by column, equal strings of a column once, nothing that HTML could read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# `data` in page.js undoes this; `unpack` there is the counterpart of `pack`.
ESCAPES = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


def script_json(value: Any) -> str:
    """Return a value as packed JSON that can stand in a script element.

    Raises ValueError for numbers that JSON has not, such as nan.
    """
    return json.dumps(pack(value), allow_nan=False, separators=(",", ":")).translate(ESCAPES)


def pack(value: Any) -> Any:
    """Return a value in which lists of objects with equal keys are `{"columns": {key: column}}`.

    A column is a list of values, or `{"values": [...], "at": [...]}`: the different strings, and which each row has.
    """
    if isinstance(value, Mapping):
        return {key: pack(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    first = value[0] if value else None
    if len(value) > 1 and isinstance(first, Mapping) and all(alike(first, each) for each in value):
        return {"columns": {key: column([each[key] for each in value]) for key in first}}
    return [pack(item) for item in value]


def alike(first: Mapping[str, Any], other: Any) -> bool:
    """Return whether two rows have the same keys in the same order."""
    return isinstance(other, Mapping) and [*first] == [*other]


def column(values: list[Any]) -> Any:
    """Return a column, with a list of its different strings if they repeat."""
    if not all(isinstance(each, str) for each in values):
        return [pack(each) for each in values]
    different = {each: index for index, each in enumerate(dict.fromkeys(values))}
    if len(different) > len(values) * 0.7:
        return values
    return {"values": [*different], "at": [different[each] for each in values]}

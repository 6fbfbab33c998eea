"""Pack a report's JSON for the page: tables by column, equal values of a column once, nothing that HTML could read."""

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

    A column is a list of values, or `{"values": [...], "at": [...]}`: the different values, and which each row has. One
    of lists is `{"lengths": column, "items": pack(...)}`: the length of each, and the items of all of them.
    """
    if isinstance(value, Mapping):
        return {key: pack(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    first = value[0] if value else None
    if len(value) > 1 and first and isinstance(first, Mapping) and all(alike(first, each) for each in value):
        return {"columns": {key: column([each[key] for each in value]) for key in first}}
    return [pack(item) for item in value]


def alike(first: Mapping[str, Any], other: Any) -> bool:
    """Return whether two rows have the same keys in the same order."""
    return isinstance(other, Mapping) and [*first] == [*other]


def column(values: list[Any]) -> Any:
    """Return a column: with the lists in it as one, or with its different values once if that is shorter."""
    if all(isinstance(each, list) for each in values):
        items = [item for each in values for item in each]
        return {"lengths": column([len(each) for each in values]), "items": pack(items)}
    packed = [pack(each) for each in values]
    texts = [json.dumps(each) for each in packed]
    different = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    at = [different[text] for text in texts]
    if sum(map(len, texts)) <= sum(map(len, different)) + sum(len(str(each)) for each in at):
        return packed
    return {"values": [packed[at.index(index)] for index in different.values()], "at": at}

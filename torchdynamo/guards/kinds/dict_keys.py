"""The keys of a dict, in order."""

from __future__ import annotations

from torchdynamo.guards.kind import Kind, by_node
from torchdynamo.guards.kinds.equals_match import same

KIND = Kind(
    "DICT_KEYS",
    holds=lambda value, arg, roots: len(value) == len(arg) and all(map(lambda a, b: a is b or same(a, b), value, arg)),
    lower=by_node("keys"),
    tell=lambda value: repr(list(value)),
)

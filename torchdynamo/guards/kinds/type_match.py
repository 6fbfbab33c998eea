"""The exact class of an object."""

from __future__ import annotations

from torchdynamo.guards.kind import Change, Kind, by_node, short

KIND = Kind(
    "TYPE_MATCH",
    holds=lambda value, arg, roots: type(value) is arg,
    lower=by_node("type"),
    why=lambda value, arg, roots: Change("", f"a {short(arg)}", f"a {short(type(value))}"),
)

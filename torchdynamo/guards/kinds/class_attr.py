"""What a class has under a name, along its MRO."""

from __future__ import annotations

from typing import Any

from torchdynamo.capture.value import ABSENT
from torchdynamo.guards.kind import Kind


def find(cls: Any, name: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return ABSENT


def lower(guard: Any, node_of: Any) -> tuple[int, str, Any]:
    name, expected = guard.arg
    node = node_of(guard.source)
    return (node, "lookup_absent", (name,)) if expected is ABSENT else (node, "lookup", (name, expected))


KIND = Kind(
    "CLASS_ATTR",
    holds=lambda value, arg, roots: find(value, arg[0]) is arg[1],
    lower=lower,
    tell=lambda value: "another attribute",
)

"""Contexts of wrapper subclasses as constants: equal only if the contexts are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

from torchdynamo.graph.wrappers import told


class Pairs(dict[str, int]):
    """A dict with an attribute."""

    unit = "m"


class Row(list[int]):
    """A list of a class of its own."""


class Slotted:
    __slots__ = ("scale",)

    def __init__(self, scale: float) -> None:
        self.scale = scale


class Scaling:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, x: Any) -> Any:
        return x * self.factor


def pairs(unit: str) -> Pairs:
    made = Pairs(a=1)
    made.unit = unit
    return made


CONTEXTS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "an ordered dict": (lambda: OrderedDict(s=2), lambda: OrderedDict(s=3)),
    "a dict of a class": (lambda: Pairs(a=1), lambda: Pairs(a=2)),
    "an attribute of a dict": (lambda: pairs("m"), lambda: pairs("km")),
    "a list of a class": (lambda: Row([1, 2]), lambda: Row([1, 3])),
    "a list of another class": (lambda: Row([1]), lambda: [1]),
    "a set": (lambda: {1, 2}, lambda: {1, 3}),
    "slots": (lambda: Slotted(2.0), lambda: Slotted(3.0)),
    "a callable object": (lambda: Scaling(2.0), lambda: Scaling(3.0)),
    "a function": (lambda: lambda x: x, lambda: lambda x: x),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_different_contexts_differ(name: str) -> None:
    one, other = (make() for make in CONTEXTS[name])
    assert told(one) == told(one)
    assert told(one) != told(other)


@pytest.mark.parametrize("name", [name for name in CONTEXTS if name != "a function"])
def test_equal_contexts_are_equal(name: str) -> None:
    make, _ = CONTEXTS[name]
    one, other = make(), make()
    assert told(one) == told(other)


def test_what_changes_where_it_is_is_seen() -> None:
    held = Slotted(2.0)
    before = told(held)
    held.scale = 5.0
    assert told(held) != before

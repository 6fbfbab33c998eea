"""Arguments that do not fit: a captured call fails with Python's words."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import torchdynamo

X = torch.arange(4.0)


def plain(a, b): ...
def defaults(a, b=1, c=2): ...
def named(*, a, b, c=1): ...
def mixed(a, *, b): ...
def by_place(a, b, /, c): ...
def none(): ...
def five(a, b, c, d, e): ...
def takes_rest(a, *rest, b): ...
def takes_all(a, /, b, **rest): ...


class Thing:
    def __init__(self, a): ...

    def method(self, b): ...

    @staticmethod
    def static(c): ...

    @classmethod
    def of(cls, d): ...


def passed_on(fn):
    @functools.wraps(fn)
    def inner(only):
        return only

    return inner


WRAPPED = passed_on(Thing.method)

CALLS = [
    lambda: plain(),
    lambda: plain(1),
    lambda: plain(b=1),
    lambda: plain(1, 2, 3),
    lambda: plain(1, a=1),
    lambda: plain(1, z=1),
    lambda: plain(1, z=1, a=2),
    lambda: plain(1, 2, 3, z=1),
    lambda: defaults(),
    lambda: defaults(1, 2, 3, 4),
    lambda: defaults(b=3),
    lambda: named(),
    lambda: named(a=1),
    lambda: named(1),
    lambda: named(1, a=1, b=2),
    lambda: mixed(1, 2),
    lambda: mixed(1, 2, b=3),
    lambda: mixed(1, 2, 3, b=3),
    lambda: by_place(a=1, b=2, c=3),
    lambda: by_place(1, 2, 3, a=1),
    lambda: none(1),
    lambda: none(1, 2),
    lambda: none(**{"x y": 1}),
    lambda: five(),
    lambda: five(1, 2),
    lambda: five(1, 2, 3),
    lambda: five(1, 2, 3, 4),
    lambda: takes_rest(),
    lambda: takes_rest(1, 2),
    lambda: takes_all(a=1),
    lambda: takes_all(1, b=1, a=2),
    lambda: Thing(),
    lambda: Thing(1, 2),
    lambda: Thing(1).method(),
    lambda: Thing(1).method(1, 2),
    lambda: Thing.static(),
    lambda: Thing.of(1, 2),
    lambda: WRAPPED(),
    lambda: (lambda q: q)(),
]


def words(x: Any, call: Any) -> Any:
    def within(p): ...

    found = []
    for each in (call, lambda: within(1, 2), lambda: within()):
        try:
            each()
        except TypeError as error:
            found.append(str(error))
        else:
            found.append("fits")
    return x + 1, found


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_words(number: int) -> None:
    compiled = torchdynamo.compile(words, backend="eager", fullgraph=True)
    assert compiled(X, CALLS[number])[1] == words(X, CALLS[number])[1]

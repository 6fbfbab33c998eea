"""Texts of Python's containers, exceptions, slices and namespaces, in which each object says how it is written."""

from __future__ import annotations

import types
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import pytest
import torch
from following import check

X = torch.ones(3)


class Named:
    def __init__(self, name: Any) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Ordered(OrderedDict[str, Any]):
    pass


class Queue(deque[Any]):
    pass


class Several(set[Any]):
    def __iter__(self):
        return iter(["first", *super().__iter__()])


class Space(types.SimpleNamespace):
    pass


class Wrong(ValueError):
    pass


MAKERS = {
    "ordered": lambda one: [OrderedDict(a=one, b=[one]), Ordered(a=one), OrderedDict(), Ordered()],
    "queue": lambda one: [deque([one, 2]), Queue([one], maxlen=4), deque(maxlen=1)],
    "default": lambda one: [defaultdict(None, a=one), defaultdict(int, {1: one})],
    "counter": lambda one: [Counter("aab"), Counter()],
    "set": lambda one: [{one}, set(), Several([one]), Several(), frozenset([1])],
    "namespace": lambda one: [types.SimpleNamespace(a=one, b=1), Space(c=one), types.SimpleNamespace()],
    "slice": lambda one: [slice(one, 2), slice(1, one, [one]), slice(3)],
    "exception": lambda one: [ValueError(one), Wrong(one, 2), KeyError(), StopIteration(2, "text")],
    "proxy": lambda one: [types.MappingProxyType({"a": one})],
}


@pytest.mark.parametrize("kind", MAKERS)
def test_what_a_function_makes(kind: str) -> None:
    def written(x):
        return x + 1, [(repr(each), str(each), f"{each}") for each in MAKERS[kind](Named(1))]

    check(written, (X,))


@pytest.mark.parametrize("kind", sorted(MAKERS.keys() - {"set", "proxy"}))
def test_what_a_function_is_given(kind: str) -> None:
    def written(x, given):
        return x + 1, [(repr(each), str(each)) for each in given]

    check(written, (X, MAKERS[kind](Named(1))))


def in_themselves(x):
    ordered, queue, space = OrderedDict(), deque(), types.SimpleNamespace()
    ordered["a"], space.own = ordered, space
    queue.append(queue)
    default: Any = defaultdict(list)
    default["a"] = [default]
    return x, repr(ordered), repr(queue), repr(space), repr(default)


def parts_of_a_slice(x):
    cut = slice(Named(1), x.size(0))
    return x, repr(cut.start), cut.stop + 1, cut.step


@pytest.mark.parametrize("fn", [in_themselves, parts_of_a_slice])
def test_containers_in_themselves_and_parts_of_slices(fn: Any) -> None:
    check(fn, (X,))

"""The order of a set that was there before, after the function has changed it: Python's, whatever it was given."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchdynamo

X = torch.ones(1)


def update(x, s, other):
    s.update(other)
    return x + 1


def union(x, s, other):
    s |= set(other)
    return x + 1


def intersection_update(x, s, other):
    s.intersection_update(other)
    return x + 1


def intersection(x, s, other):
    s &= set(other)
    return x + 1


def difference_update(x, s, other):
    s.difference_update(other)
    return x + 1


def difference(x, s, other):
    s -= set(other)
    return x + 1


def symmetric_difference_update(x, s, other):
    s.symmetric_difference_update(other)
    return x + 1


def symmetric_difference(x, s, other):
    s ^= frozenset(other)
    return x + 1


def out_and_in(x, s, other):
    for item in list(other):
        s.discard(item)
    for item in list(other):
        s.add(item)
    return x + 1


KINDS: list[Callable[[Any], Any]] = [set, frozenset, list, tuple, dict.fromkeys]
CHANGES = [
    *(update, union, intersection_update, intersection, difference_update, difference),
    *(symmetric_difference_update, symmetric_difference, out_and_in),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("fn", CHANGES, ids=lambda fn: fn.__name__)
def test_order(fn: Any, kind: Any) -> None:
    rng = random.Random(fn.__name__)
    for _ in range(4):
        items = [*(8 * rng.randrange(200) for _ in range(30)), *"abcdefgh"]  # many of them in one another's places
        mine, theirs = (rng.sample(items, rng.randrange(1, 14)) for _ in range(2))
        other = kind(theirs + mine[:3])
        eager, compiled = set(mine), set(mine)
        torchdynamo.reset()
        fn(X, eager, other)
        torchdynamo.compile(fn, backend="eager")(X, compiled, other)
        assert list(compiled) == list(eager)


def test_an_order_that_neither_way_round_makes():
    """A set put in order of where its items lie is not made of them in that order, nor in the other."""
    other = frozenset([195, 155, 196])
    wanted = list(other)
    assert list(set(wanted)) != wanted
    wanted.reverse()
    assert list(set(wanted)) != list(other)
    eager, compiled = set(range(150, 200)), set(range(150, 200))
    torchdynamo.reset()
    intersection(X, eager, other)
    torchdynamo.compile(intersection, backend="eager")(X, compiled, other)
    assert list(compiled) == list(eager)


class Thing:
    def __init__(self, name):
        self.name = name


THINGS = [Thing(at) for at in range(20)]


def of_objects(x):
    seen = set(THINGS[3:9])
    seen.update(THINGS[1:5])
    seen.discard(THINGS[4])
    seen |= set(THINGS[10:14])
    first, copied = seen.pop(), seen.copy()
    copied.add(THINGS[19])
    both = [*(seen - {THINGS[5]}), *(seen & set(THINGS[:8])), *seen.union(copied), *{THINGS[2], THINGS[1]}]
    return x + len(seen), [each.name for each in (first, *seen, *copied, *both)], THINGS[5] in seen, {3, THINGS[1]}


def test_objects_that_existed():
    """They are where they lie. So others, which lie elsewhere, have another order."""
    compiled = torchdynamo.compile(of_objects, backend="eager", fullgraph=True)
    for _ in range(3):
        assert compiled(X) == of_objects(X)
        THINGS[:] = [Thing(at) for at in range(20)]

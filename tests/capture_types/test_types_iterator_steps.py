"""Iterators made of others, given or made in the function: after an end or an error they go on as in eager."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchdynamo

X = torch.ones(2)


def numbers() -> list[Any]:
    return [1, 2, 3, 4, 5, 6]


def bad(value):
    if value in (1, 4):
        raise ValueError("bad")
    return value


def stops(value):
    if value in (1, 4):
        raise StopIteration
    return value * 10


class Pausing:
    """An iterator that ends at every third number, and goes on."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        if self.at % 3 == 0:
            raise StopIteration
        if self.at == 4:
            raise KeyError(self.at)
        return self.at


class Indexed:
    """A sequence whose items are there only when they are asked for again."""

    def __init__(self) -> None:
        self.asked = 0

    def __getitem__(self, index):
        self.asked += 1
        if self.asked in (2, 4):
            raise ValueError(index)
        if index == 3:
            raise IndexError
        return index + 1


def some(it: Any) -> list[Any]:
    """Ask ten times, whatever comes."""
    found: list[Any] = []
    for _ in range(10):
        try:
            found.append(next(it, None))
        except (ValueError, KeyError, RuntimeError) as error:
            found.append((type(error).__name__, str(error)))
    return found


Maker = Callable[[Any], Any]
MADE: dict[str, Maker] = {
    "zip": lambda a: zip(a, iter([1])),
    "zip of itself": lambda a: zip(a, a, a, iter([1])),
    "zip of none": lambda a: zip(),
    "zip of one that goes on": lambda a: zip(a, Pausing()),
    "zip by index": lambda a: zip(a, Indexed()),
    "map": lambda a: map(lambda p, q: p + q, a, iter([1])),
    "map raises": lambda a: map(bad, a),
    "map stops": lambda a: map(stops, a),
    "map of a list": lambda a: map(bad, [0, 1, 2]),
    "map of one that goes on": lambda a: map(bad, Pausing()),
    "filter": lambda a: filter(None, a),
    "filter raises": lambda a: filter(bad, a),
    "filter stops": lambda a: filter(stops, a),
    "filter by bool": lambda a: filter(bool, [0, 1, 0, 2]),
    "enumerate": lambda a: enumerate(a, True),
    "enumerate of one that goes on": lambda a: enumerate(Pausing(), 3),
    "enumerate of map": lambda a: enumerate(map(bad, a)),
    "shared": lambda a: enumerate(zip(a, map(bad, a))),
    "shared by filter": lambda a: zip(filter(stops, a), map(stops, a), a),
    "map of zip": lambda a: map(sum, zip(a, map(bad, iter([2, 3, 1, 5])))),
    "strict": lambda a: zip(a, a, a, strict=True),
    "strict, first is shorter": lambda a: zip(iter([1]), a, strict=True),
    "strict, second is shorter": lambda a: zip(a, iter([1, 2]), strict=True),
    "strict, third is shorter": lambda a: zip(a, a, iter([7]), strict=True),
    "strict, third is longer": lambda a: zip(iter([]), iter([]), a, strict=True),
    "strict, one raises": lambda a: zip(a, map(bad, iter([3, 1, 2])), strict=True),
    "starmap": lambda a: itertools.starmap(bad, iter([(2,), (1,), (), (3,)])),
    "filterfalse": lambda a: itertools.filterfalse(bad, a),
    "compress": lambda a: itertools.compress(a, iter([1, 0])),
    "accumulate": lambda a: itertools.accumulate(a, lambda p, q: p + bad(q)),
    "accumulate from": lambda a: itertools.accumulate(a, initial=10),
    "chain": lambda a: itertools.chain([0], map(bad, a)),
    "longest": lambda a: itertools.zip_longest(a, map(bad, iter([2, 1, 3]))),
    "pairwise": lambda a: itertools.pairwise(map(bad, a)),
    "islice": lambda a: itertools.islice(map(bad, a), 3),
    "takewhile": lambda a: itertools.takewhile(stops, a),
    "dropwhile": lambda a: itertools.dropwhile(bad, a),
    "cycle": lambda a: itertools.cycle(map(bad, a)),
    "until": lambda a: iter(lambda: bad(next(a)), 3),
    "groups": lambda a: itertools.groupby(a, bad),
    "by index": lambda a: iter(Indexed()),
}


def compare(fn: Callable[..., Any], make: Callable[[], tuple[Any, ...]]) -> None:
    outcomes = []
    for called in (fn, torchdynamo.compile(fn, backend="eager")):
        held, seen = make(), []
        for _ in range(2):
            try:
                seen.append(repr(called(X, *held)))
            except (ValueError, KeyError, StopIteration, TypeError) as error:
                seen.append(repr(error))
        outcomes.append((seen, [some(each) for each in held if hasattr(each, "__next__")]))
    assert outcomes[0] == outcomes[1]


def shown(found):
    return [(each[0], "group") if isinstance(each, tuple) and hasattr(each[-1], "__next__") else each for each in found]


@pytest.mark.parametrize("kind", MADE)
def test_made_in_the_function(kind: str) -> None:
    make = MADE[kind]
    compare(lambda x, a: (x + 1, shown(some(make(a)))), lambda: (iter(numbers()),))


@pytest.mark.parametrize("kind", MADE)
def test_given(kind: str) -> None:
    def made() -> tuple[Any, ...]:
        first = iter(numbers())
        return MADE[kind](first), first

    def twice(x, it, a):
        try:
            first = next(it)
        except (ValueError, StopIteration) as error:
            first = type(error).__name__
        return x + 1, shown([first, next(it, None), next(a, None)])

    if kind != "groups":
        compare(twice, made)
        compare(lambda x, it, a: (x + 1, some(it)), made)


def both(it, other):
    return [next(it, None), next(other, None), next(it, None), list(it), list(other), next(it, None)]


@pytest.mark.parametrize(
    "make",
    [
        lambda a: (zip(a, a), map(abs, a)),
        lambda a: (enumerate(a), filter(None, a)),
        lambda a: (map(stops, a), map(stops, a)),
        lambda a: (enumerate(zip(a, map(abs, a))), a),
    ],
)
def test_two_that_take_from_one(make: Callable[[Any], Any]) -> None:
    compare(lambda x, a: (x + 1, both(*make(a))), lambda: (iter(numbers()),))
    compare(lambda x, it, other: (x + 1, both(it, other)), lambda: make(iter(numbers())))


def test_unpacking_takes_as_many_items() -> None:
    def unpacked(x, a):
        try:
            p, q = zip(a, a)
        except ValueError as error:
            return x + 1, str(error), next(a, None)
        return x + p[0] + q[1]

    for count in (2, 3, 4, 5, 6):
        compare(unpacked, lambda count=count: (iter(numbers()[:count]),))


@pytest.mark.parametrize(
    "change", [lambda items: items.pop(), lambda items: items.append(9), lambda items: items.clear()]
)
@pytest.mark.parametrize("begun", [0, 1])
def test_reversed_of_a_list_that_has_changed(change: Callable[[Any], Any], begun: int) -> None:
    def made() -> tuple[Any, ...]:
        items = numbers()
        it = reversed(items)
        list(itertools.islice(it, begun))
        change(items)
        return (it,)

    compare(lambda x, it: (x + 1, next(it, None), list(it)), made)


def test_map_whose_function_asks_it() -> None:
    def within(x, a):
        held: list[Any] = []

        def odd(value):
            return value if value % 2 else next(held[0])

        held.append(map(odd, a))
        return x + 1, list(held[0])

    compare(within, lambda: (iter(numbers()),))


def test_map_of_nothing_is_an_error() -> None:
    compare(lambda x: (x + 1, map(abs)), lambda: ())  # type: ignore[call-overload]

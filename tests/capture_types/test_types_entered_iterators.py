"""Iterators that a compiled function is given: what they give, and where they are afterwards, is as in eager."""

from __future__ import annotations

import copy
import itertools
import operator
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo import exc

X = torch.arange(4.0)
MAKERS: dict[str, Callable[[], Any]] = {
    "list": lambda: iter([1, 2, 3, 4, 5]),
    "tuple": lambda: iter((1, 2.5, 3, 4, True)),
    "range": lambda: iter(range(5)),
    "text": lambda: map(ord, "aé\u0100b"),
    "bytes": lambda: iter(b"abcde"),
    "tensors": lambda: iter([torch.ones(4), torch.ones(1), torch.zeros(4), torch.ones(1)]),
    "backwards": lambda: reversed([1, 2, 3, 4, 5]),
    "map": lambda: map(operator.mul, [1, 2, 3, 4], iter([5, 6, 7, 8])),
    "filter": lambda: filter(None, [0, 1, 0, 2, 3, 4]),
    "of zip": lambda: map(sum, zip([1, 2, 3, 4], range(5))),
    "count": lambda: itertools.count(3),
    "subclass": lambda: iter(Guarded([1, 2, 3, 4])),
}


class Guarded(list[int]):
    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("an iterator of a list does not ask for this")


def rest(held: Any) -> Any:
    """What the iterators in it give, seven at most; nothing else is looked at."""
    if isinstance(held, list):
        return [rest(each) for each in held]
    return [repr(next(held, None)) for _ in range(7)] if hasattr(held, "__next__") else repr(held)


def compare(make: Callable[[], Any], fn: Callable[..., Any], calls: int = 3, **settings: Any) -> int:
    """Call a function, as it is and compiled, with what `make` makes; return the number of graphs."""
    graphs = []

    def counting(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    outcomes = []
    for called in (fn, torchdynamo.compile(fn, backend=counting, **{"fullgraph": True} | settings)):
        held, seen = make(), []
        for _ in range(calls):
            try:
                seen.append(repr(called(X, held)))
            except (ValueError, RuntimeError) as error:
                seen.append(repr(error))
        outcomes.append((seen, rest(held)))
    assert outcomes[0] == outcomes[1]
    return len(graphs)


def take(x, it):
    return x + next(it)


def take_two(x, it):
    for each in itertools.islice(it, 2):
        x = x + each
    return x


def take_all(x, it):
    for each in it:
        x = x * each + each
    return x, next(it, None)


@pytest.mark.parametrize("kind", MAKERS)
def test_items_are_taken(kind: str) -> None:
    compare(MAKERS[kind], take)
    compare(MAKERS[kind], take_two, calls=2)


@pytest.mark.parametrize("kind", sorted(MAKERS.keys() - {"count"}))
def test_all_items_are_taken(kind: str) -> None:
    compare(MAKERS[kind], take_all, calls=2)


def test_layers_of_a_kind_are_one_version() -> None:
    layers = [torch.nn.Linear(4, 4) for _ in range(4)]
    assert compare(lambda: iter(layers), lambda x, it: next(it)(x), calls=4) == 1


def pair(make: Callable[[Any], Any]) -> Callable[[], Any]:
    def made() -> Any:
        first = iter([5, 6, 7, 8, 9, 10, 11])
        return [make(first), first]

    return made


SHARED: list[tuple[Callable[[Any], Any], Callable[..., Any]]] = [
    (enumerate, lambda x, held: (x + next(held[0])[1], next(held[1]))),
    (enumerate, lambda x, held: (x, next(held[1], 0), list(held[0]), next(held[1], None))),
    (lambda it: enumerate(it, 3), lambda x, held: (x, list(itertools.islice(held[0], 2)))),
    (lambda it: zip(it, it), lambda x, held: (x, next(held[0]), next(held[1]))),
    (lambda it: zip(it, [1]), lambda x, held: (x, list(held[0]), next(held[1]))),
    (iter, lambda x, held: (x, held[0] is held[1], next(held[0]), next(held[1]))),
]


@pytest.mark.parametrize(("make", "fn"), SHARED)
def test_iterators_that_take_from_another(make: Callable[[Any], Any], fn: Callable[..., Any]) -> None:
    compare(pair(make), fn, calls=2)


def test_an_iterator_that_two_others_exhaust() -> None:
    def made() -> Any:
        first = iter([5, 6, 7])
        return [enumerate(first), enumerate(first, 3), first]

    compare(made, lambda x, held: (x, list(held[0]), list(held[1]), next(held[2], None)), calls=2, fullgraph=False)


def test_an_iterator_in_an_attribute() -> None:
    space = SimpleNamespace(it=iter([1, 2, 3]))
    compiled = torchdynamo.compile(lambda x: x + next(space.it), backend="eager", fullgraph=True)
    assert [compiled(X)[0].item(), compiled(X)[0].item(), next(space.it)] == [1, 2, 3]


def append_after(x, held):
    items, it = held
    x = x + next(it)
    items.append(9)
    return x


def append_at_the_end(x, held):
    items, it = held
    total = sum(it)
    items.append(9)
    return x + total, next(it, None)


def clear(x, held):
    items, it = held
    x = x + next(it, 0)
    items.clear()
    return x, next(it, None)


def raises(x, held):
    raise ValueError(next(held[1]))


@pytest.mark.parametrize("fn", [append_after, append_at_the_end, clear, raises])
def test_lists_that_change_meanwhile(fn: Callable[..., Any]) -> None:
    def made() -> Any:
        items = [1, 2, 3]
        return [items, iter(items)]

    compare(made, fn, fullgraph=False)


def at_breaks(x, it):
    first = next(it)
    torchdynamo.graph_break()
    x = x * first + next(it)
    torchdynamo.graph_break()
    return x + next(it), it.__length_hint__(), list(copy.copy(it))


def under_a_check(x, it):
    step = next(it)
    assert x.sum() < 9, "large"
    return x * step


@pytest.mark.parametrize("fn", [at_breaks, under_a_check])
def test_the_rest_of_a_frame_finds_them_where_they_are(fn: Callable[..., Any]) -> None:
    compare(lambda: iter([3, 2, 1, 4, 5, 6, 7, 8, 9]), fn, fullgraph=False)


@pytest.mark.parametrize(
    "make",
    [
        lambda: iter({1: 2, 3: 4}),
        lambda: (each for each in (1, 2, 3)),
        lambda: zip([1, 2], [3, 4], strict=True),
        lambda: itertools.count(1, 2),
        lambda: itertools.count(2**70),
        lambda: itertools.chain([1], [2, 3]),
        lambda: enumerate(map(abs, [1, 2, 3])),
    ],
)
def test_those_that_do_not_tell_what_they_give_end_the_graph(make: Callable[[], Any]) -> None:
    with pytest.raises(exc.Unsupported, match="iteration over"):
        torchdynamo.compile(lambda x, it: (x + 1, next(it)), backend="eager", fullgraph=True)(X, make())
    compare(make, lambda x, it: (x + 1, next(it)), calls=2, fullgraph=False)


def test_they_are_looked_at_only_so_far() -> None:
    compare(lambda: iter(list(range(sys.getrecursionlimit() + 5000))), take)

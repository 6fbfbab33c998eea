"""Operands of operators, conversions, unpacking and spreading: who is asked, and what Python says if nobody answers."""

from __future__ import annotations

import collections
import operator
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from following import check

X = torch.ones(3)


class Plain:
    pass


class Declining:
    def __divmod__(self, other):
        return NotImplemented

    def __pow__(self, other, modulus=None):
        return NotImplemented if modulus is None else ("power", modulus)


class Answering(Declining):
    def __rdivmod__(self, other):
        return "divided", type(other).__name__

    def __rpow__(self, other, modulus=None):
        return "raised", type(other).__name__


class Index:
    def __index__(self):
        return 3


class Halves:
    def __float__(self):
        return 0.5

    def __index__(self):
        return 7


def asked_in_turn(x):
    left, right = Declining(), Answering()
    seen = [divmod(left, right), divmod(7, right), divmod(right, 7) if 0 else divmod(7.5, right)]
    seen.extend([pow(left, right), pow(2, right), pow(left, 2, 5), 2**right])
    return x + 1, seen


def repeated(x):
    return x, "ab" * Index(), Index() * b"c", [1] * Index(), "d" * (Index().__index__() - 1)


def searched(x):
    held = {frozenset([1]), 2, 3}
    found = [{1} in held, {2} in held, held.__contains__({1})]
    held.discard({5})
    held.remove({1})
    try:
        held.remove({1})
    except KeyError as error:
        found.append(error.args)
    return x, found, sorted(held)


def converted(x):
    return x, int(Index()), float(Index()), complex(Index()), int(Halves()), float(Halves()), complex(Halves())


def declined_by_name(x):
    return x, [1].__eq__((1,)), (1,).__lt__([1]), {1}.__or__([1]), {}.__or__([1]), collections.deque([1]).__ne__([1])


@pytest.mark.parametrize("fn", [asked_in_turn, repeated, searched, converted, declined_by_name])
def test_operands_are_asked_in_turn(fn: Any) -> None:
    check(fn, (X,))


REFUSED = [
    *(lambda one, fn=fn: fn(one) for fn in (abs, round, int, float, complex, operator.neg, operator.invert)),
    *(lambda one, fn=fn: fn(one, 3) for fn in (divmod, pow, round, operator.add, operator.lt, operator.iadd)),
    *(lambda one, fn=fn: fn(3, one) for fn in (divmod, pow, operator.ipow, operator.ge)),
    lambda one: "a" + one,
    lambda one: [1] * one,
    lambda one: one * "a",
    lambda one: collections.deque() - one,
    lambda one: divmod(Declining(), one),
    lambda one: pow(Declining(), Declining()),
    lambda one: 1 in one,
    lambda one: named(*one),
    lambda one: named(1, *one),
    lambda one: named(**one),
    lambda one: {**one},
    lambda one: {**[(1, 2)]},
    lambda one: unpacked(one),
    lambda one: [[] for first, *rest in [one]],
    lambda one: collections.deque([1], "a"),
    lambda one: max([1], [2], default=one),
    lambda one: sum(["a"], ""),
    lambda one: sum([], bytearray()),
    lambda one: [].insert("a", one),
    lambda one: [1].pop(one),
    *(lambda one, held=held: held().__add__(one) for held in (list, tuple, collections.deque, torch.Size)),
    *(lambda one, held=held: held().__mul__(one) for held in (list, tuple, collections.deque, torch.Size)),
    *(lambda one, held=held: operator.imul(held(), one) for held in (list, collections.deque)),
    lambda one: Plenty([1]).__add__((one,)),
    lambda one: [1].__imul__("a"),
    lambda one: issubclass(one, int),
    lambda one: issubclass(one, (int, str)),
    lambda one: issubclass(one, int | collections.abc.Sequence),
    lambda one: issubclass(X + 1, int),
]


class Plenty(list[Any]):
    pass


def named(*args, **kwargs):
    return args, kwargs


def unpacked(given):
    first, second = given
    return first, second


UNHASHABLE = [
    lambda: {1}.discard([]),
    lambda: {bytearray(b"ab"): 1},
    lambda: {1: 2}.get({}),
    lambda: frozenset([[]]),
]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="CPython says there what for, and captures do not")
@pytest.mark.parametrize("use", UNHASHABLE)
def test_what_has_no_hash_is_no_key_and_no_element(use: Callable[[], object]) -> None:
    def refusing(x):
        try:
            use()
        except TypeError as error:
            return x, str(error)
        return x + 1, ""

    check(refusing, (X,))


@pytest.mark.parametrize("at", range(len(REFUSED)))
def test_errors_are_those_of_python(at: int) -> None:
    def refusing(x):
        try:
            REFUSED[at](Plain())
        except TypeError as error:
            return x, str(error)
        return x + 1, ""

    check(refusing, (X,))

"""What only identity tells apart: modules, parameters and other objects in sets, properties of classes."""

from __future__ import annotations

import gc
import inspect
import weakref
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo import _native

X = torch.ones(2)


class Thing:
    def __init__(self, number: int) -> None:
        self.number = number


class Equal(Thing):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal) and other.number == self.number

    def __hash__(self) -> int:
        return 1


ONE, TWO, THREE = Thing(1), Thing(2), Thing(3)
LAYER = torch.nn.Linear(2, 2)
FROZEN = frozenset({ONE, TWO, "a", 3})
MODULES, PARAMETERS = {LAYER}, set(LAYER.parameters())
EQUAL = {Equal(1), ONE}


def among_things(x):
    return x + 1, ONE in FROZEN, THREE in FROZEN, Thing(1) in FROZEN, len(FROZEN), bool(FROZEN), TWO not in FROZEN


def among_others(x):
    return x + 1, "a" in FROZEN, 3.0 in FROZEN, (1,) in FROZEN, "b" in FROZEN, x in FROZEN, FROZEN


def among_modules(x):
    return LAYER(x), LAYER in MODULES, LAYER.weight in PARAMETERS, x in PARAMETERS, LAYER.bias + 1 in PARAMETERS


def in_constants(x):
    return x + 1, LAYER in frozenset({1, 2}), x in frozenset({1}), Equal(1) in frozenset({1, "a"})


@pytest.mark.parametrize("fn", [among_things, among_others, among_modules, in_constants])
def test_membership_is_captured(fn: Any) -> None:
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        x = torch.rand(2)
        wanted, found = fn(x), compiled(x)
        assert torch.equal(found[0], wanted[0])
        assert found[1:] == wanted[1:]
    assert len(_native.cache_entries(fn.__code__)) == 1


def of_equal_ones(x):
    return x + 1, Equal(1) in EQUAL, Equal(2) in EQUAL, ONE in EQUAL


def of_all(x):
    return (
        x + 1,
        sorted(str(each) for each in FROZEN),
        FROZEN | {5},
        {ONE} == FROZEN,
        {FROZEN: 1}[FROZEN],
        ONE in {*FROZEN},
    )


@pytest.mark.parametrize("fn", [of_equal_ones, of_all])
def test_what_asks_more_of_a_set_gives_what_python_gives(fn: Any) -> None:
    compiled = torchdynamo.compile(fn, backend="eager")
    for _ in range(2):
        assert compiled(X)[1:] == fn(X)[1:]


class Holder:
    members: Any
    one: Any


def chosen(x, holder):
    return x + 1 if holder.one in holder.members else x - 1


@pytest.mark.parametrize("kind", [set, frozenset])
def test_what_changes_is_seen(kind: Any) -> None:
    torchdynamo.reset()
    holder = Holder()
    compiled = torchdynamo.compile(chosen, backend="eager", fullgraph=True)
    for members, one in (({ONE}, ONE), ({ONE}, TWO), ({ONE, TWO}, TWO), ({ONE, THREE}, TWO), (set(), TWO)):
        holder.members, holder.one = kind(members), one
        assert torch.equal(compiled(X, holder), chosen(X, holder))
    holder.members = kept = {ONE, THREE}
    assert torch.equal(compiled(X, holder), X - 1)
    kept.add(TWO)
    assert torch.equal(compiled(X, holder), X + 1)


def test_what_was_in_a_set_is_not_kept() -> None:
    holder = Holder()
    holder.one = Thing(4)
    holder.members = {holder.one}
    gone = weakref.ref(holder.one)
    compiled = torchdynamo.compile(chosen, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X, holder), X + 1)
    del holder.one, holder.members
    gc.collect()
    assert gone() is None


# -- what a class shows, and its __dict__ holds ------------------------------------------------------------------------
class Shown:
    __slots__ = ("slot",)
    one = property(lambda self: 1)
    same = one
    other = property(lambda self: 2)


SHOWN = {Shown.one, Shown.slot}


def told_apart(x):
    own = Shown.__dict__
    same = own["one"] is Shown.one, own["slot"] is Shown.slot, Shown.one is Shown.same, own["one"] == own["same"]
    return (
        x + 1,
        same,
        own["one"] is Shown.other,
        own["other"] != Shown.one,
        inspect.getattr_static(Shown, "one") is own["one"],
    )


def as_keys(x):
    own = Shown.__dict__
    found = (
        {Shown.one: 1}[own["one"]],
        {own["slot"]: 2}[Shown.slot],
        Shown.one in {own["same"]},
        [own["one"]].index(Shown.one),
    )
    return x + 1, found, Shown.one in SHOWN, own["slot"] in SHOWN, Shown.other in SHOWN


@pytest.mark.parametrize("fn", [told_apart, as_keys])
def test_a_property_is_one_object_wherever_it_is_found(fn: Any) -> None:
    compiled = torchdynamo.compile(fn, backend="eager")
    for _ in range(2):
        assert compiled(X)[1:] == fn(X)[1:]


class Changing:
    one = property(lambda self: 1)
    other = property(lambda self: 2)


def is_one(x):
    return x + 1 if Changing.__dict__["one"] is Changing.other else x - 1


def test_a_property_that_is_replaced_is_another() -> None:
    compiled = torchdynamo.compile(is_one, backend="eager", fullgraph=True)
    first = Changing.other
    for other in (first, Changing.one, first, property(len)):
        Changing.other = other
        assert torch.equal(compiled(X), is_one(X))

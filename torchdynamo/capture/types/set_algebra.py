"""Capture set algebra: union and its kin as methods, operators and in place, and tests of inclusion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchdynamo.capture.types.set_orders import is_set, record_update
from torchdynamo.capture.types.sets import Items, fresh, in_order, keys, write
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import models
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, Known, Object, Value, boolean

KEEP: dict[str, Callable[[Items, Items], Items]] = {
    "union": lambda a, b: {**a, **{k: v for k, v in b.items() if k not in a}},
    "intersection": lambda a, b: {k: v for k, v in a.items() if k in b},
    "difference": lambda a, b: {k: v for k, v in a.items() if k not in b},
    "symmetric_difference": lambda a, b: {k: v for k, v in {**a, **b}.items() if (k in a) != (k in b)},
}
OPERATORS = {
    "union": "or",
    "intersection": "and",
    "difference": "sub",
    "symmetric_difference": "xor",
}


def kept(
    vm: Machine, keep: Callable[[Items, Items], Items], mine: Items, theirs: Items, self: Value, other: Value
) -> Items:
    """Return the items that a set operation keeps. Ends the graph if comparing them has changed one of the sets."""
    watched = [vm.entity(each) for each in (self, other) if each.__class__ is Object]
    before = [entity.version for entity in watched]
    made = keep(dict(mine), dict(theirs))
    if [entity.version for entity in watched] != before:
        raise Break("unsupported key", type="object")
    return made


def combine(name: str) -> None:
    """Register a set operation: the method, the operator that takes only sets, and the in-place forms of both."""
    keep, symbol = KEEP[name], OPERATORS[name]

    def method(vm: Machine, self: Value, *others: Value) -> Value:
        mine, order = keys(vm, self), in_order(vm, self, keys(vm, self))
        for other in others:
            theirs = keys(vm, other)
            given = None if order is None else in_order(vm, other, theirs)
            order = None if given is None else getattr(order, name)(given)
            mine = kept(vm, keep, mine, theirs, self, other)
        return fresh(vm, set, dict(mine), None if order is None else order if others else set(order))

    def operator(vm: Machine, self: Value, other: Value) -> Value:
        return method(vm, self, other) if is_set(other) else Known(NotImplemented)

    def updating(vm: Machine, self: Object, *others: Value) -> Value:
        for other in others:
            theirs = keys(vm, other)
            given = in_order(vm, other, theirs)
            if not vm.entity(self).fresh and any(item.__class__ is not Known for item in theirs.values()):
                given = None
            mine = kept(vm, keep, dict(write(vm, self, theirs)), theirs, self, other)
            record_update(vm, self, update_name, mine, theirs, other, given)
            vm.entity(self).items = mine
        return NONE

    def in_place(vm: Machine, self: Object, other: Value) -> Value:
        if not is_set(other):
            return Known(NotImplemented)
        updating(vm, self, other)
        return self

    update_name = "update" if name == "union" else f"{name}_update"
    models(set, name)(method)
    models(set, f"__{symbol}__")(operator)
    models(set, f"__i{symbol}__")(in_place)
    models(set, update_name)(updating)


for _name in KEEP:
    combine(_name)


def relation(names: str, holds: Any, sets_only: bool = False) -> None:
    def row(vm: Machine, self: Value, other: Value) -> Value:
        if sets_only and not is_set(other):
            return Known(NotImplemented)
        return boolean(holds(dict(keys(vm, self)).keys(), dict(keys(vm, other)).keys()))

    for name in names.split():
        models(set, name)(row)
        if not sets_only:
            models(frozenset, name)(of_frozen(getattr(frozenset, name), holds))


def of_frozen(method: Any, holds: Any) -> Any:
    """Return a model that compares a frozenset: with a constant at once, with others by their items."""

    def row(vm: Machine, self: Value, other: Value) -> Value:
        if self.__class__ is not Known:
            raise Break("unsupported method", name=method.__name__, type="frozenset")
        if other.__class__ is Known:
            return vm.run_pure(method, [self, other], {})
        return boolean(holds(dict.fromkeys(self.obj).keys(), dict(keys(vm, other)).keys()))

    return row


relation("issubset", lambda a, b: a <= b)
relation("issuperset", lambda a, b: a >= b)
relation("isdisjoint", lambda a, b: a.isdisjoint(b))
relation("__le__", lambda a, b: a <= b, sets_only=True)
relation("__ge__", lambda a, b: a >= b, sets_only=True)
relation("__eq__", lambda a, b: a == b, sets_only=True)
relation("__ne__", lambda a, b: a != b, sets_only=True)
relation("__lt__", lambda a, b: a < b, sets_only=True)
relation("__gt__", lambda a, b: a > b, sets_only=True)

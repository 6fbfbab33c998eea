"""Iterators of Python's containers: asked for by `__iter__` and `reversed`, and stepped by their own methods."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator
from typing import Any

from torchdynamo._native import type_name
from torchdynamo.capture.types.deque import REVERSED as REVERSED_DEQUE
from torchdynamo.capture.types.dict_views import PARTS, VIEWS
from torchdynamo.capture.types.generators import stop
from torchdynamo.capture.types.items import turns
from torchdynamo.capture.types.sequence import items_of, read
from torchdynamo.capture.vm.enums import guard_members
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.iteration import (
    BY_INDEX,
    ITERATOR_TYPES,
    ViewOf,
    iterate,
    known_steps,
    make_iterator,
    method_of_class,
)
from torchdynamo.capture.vm.lookup import guarded_slot, has_python_operators
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import ITERATE, function, is_written_by_program, models
from torchdynamo.core.signals import Raised
from torchdynamo.core.value import Known, Object, Value

REVERSED_LIST: type = type(reversed([]))
REVERSED_VIEWS = {kind: type(reversed(getattr({}, kind)())) for kind in VIEWS}
MADE_OF_OTHERS: tuple[type, ...] = (enumerate, zip, map, filter, reversed, type(iter(int, 1)), *(
    kind for kind in vars(itertools).values() if isinstance(kind, type) and hasattr(kind, "__next__")
))  # fmt: skip


def next_(vm: Machine, self: Object) -> Value:
    item = vm.advance(self)
    if item is None:
        raise stop(vm, self)
    return item


def itself(vm: Machine, self: Object) -> Value:
    return self


for _type in {
    BY_INDEX,
    *ITERATOR_TYPES.values(),
    REVERSED_LIST,
    *REVERSED_VIEWS.values(),
    REVERSED_DEQUE,
    *MADE_OF_OTHERS,
}:
    models(_type, "__next__")(next_)
    models(_type, "__iter__")(itself)


def iterable(base: type) -> None:
    """Register `base.__iter__`, which does not ask what a subclass says."""

    def row(vm: Machine, self: Value) -> Value:
        steps = ITERATE[base](vm, self) if self.__class__ is Object else iterate(vm, self)
        return make_iterator(vm, steps, self)

    models(base, "__iter__")(row)


def iterated_by(base: Any, iterator: type) -> None:
    """Register a container in C and the type of its iterator, for files of other types."""
    ITERATOR_TYPES[base] = iterator
    models(iterator, "__next__")(next_)
    models(iterator, "__iter__")(itself)
    iterable(base)


for _base in (list, tuple, dict, set, collections.deque, *VIEWS.values(), str, bytes, range, frozenset):
    iterable(_base)


# -- backwards --------------------------------------------------------------------------------------------------------
@function(reversed)
def reversed_(vm: Machine, items: Value) -> Value:
    """Return what the class's `__reversed__` gives, or an iterator by index from the end."""
    if items.__class__ is Known:
        return known_reversed(vm, items)
    slot = guarded_slot(vm, items.pytype, "__reversed__")
    if slot[0] != "missing" and slot[1] is not None and not (slot[0] == "python" and slot[1][1] is None):
        return vm.special(items, "__reversed__")
    if slot[0] == "python" or guarded_slot(vm, items.pytype, "__getitem__")[0] == "missing":
        raise vm.error(TypeError, f"{type_name(items.pytype)!r} object is not reversible")
    return make_iterator(vm, from_end(vm, items, vm.known(vm.length(items), "length")), items, reversed)


def known_reversed(vm: Machine, items: Known) -> Value:
    """Return a reversed iterator of a constant; that of a range is the iterator of another range."""
    if type(items.obj) is range:
        return vm.iterator(Known(items.obj[::-1]))
    if has_python_operators(items):
        found = method_of_class(vm, items, "__reversed__")
        if is_written_by_program(found):
            return vm.special(items, "__reversed__")
        if found is MISSING and is_written_by_program(method_of_class(vm, items, "__getitem__")):
            return make_iterator(vm, from_end(vm, items, vm.known(vm.length(items), "length")), items, reversed)
        guard_members(vm, items.obj)
    try:
        real: Any = reversed(items.obj)
    except TypeError as error:
        raise vm.error(TypeError, *error.args) from None
    return make_iterator(vm, known_steps(vm, real), items, type(real))


def from_end(vm: Machine, items: Value, size: int) -> Iterator[Value]:
    for at in range(size - 1, -1, -1):
        try:
            item = vm.getitem(items, Known(at))
        except Raised as raised:
            if issubclass(raised.value.pytype, (IndexError, StopIteration)):
                return
            raise
        yield item


@models(list, "__reversed__")
def reversed_list(vm: Machine, self: Object) -> Value:
    return make_iterator(vm, list_from_end(vm, self), self, REVERSED_LIST)


def list_from_end(vm: Machine, self: Object) -> Iterator[Value]:
    """Yield a list's items from the end. Changes meanwhile are seen; a list that got shorter ends it."""
    at = len(items_of(vm, self)) - 1
    while 0 <= at < len(items_of(vm, self)):
        yield read(vm, items_of(vm, self), at)
        at -= 1


def reversible(pytype: type, kind: str) -> None:
    def row(vm: Machine, self: Object) -> Value:
        box = self if pytype is dict else vm.entity(self).payload_as(ViewOf).box
        return make_iterator(vm, turns(vm, box, PARTS[kind](vm), backwards=True), self, REVERSED_VIEWS[kind])

    models(pytype, "__reversed__")(row)


reversible(dict, "keys")
for _kind in VIEWS:
    reversible(VIEWS[_kind], _kind)

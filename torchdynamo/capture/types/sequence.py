"""list and tuple, their subclasses, and what deque shares with them: items are read one by one, the length by itself.

Rows that change a list are in lists.py.
"""

from __future__ import annotations

import collections
import itertools
import operator
import sys
from collections.abc import Iterator
from typing import Any

import torch

from torchdynamo.capture.types.pending_appends import Tail
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.iteration import collect
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import ITERATE, Emitter, iterates, models, plain_new, rebuilds
from torchdynamo.capture.vm.operators import inverting, same_or_equal
from torchdynamo.capture.vm.raising import refused_call
from torchdynamo.capture.vm.scalar_subclasses import indexed, plainly
from torchdynamo.capture.vm.wrap import lift, wrap
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import FALSE, NONE, TRUE, Known, Lazy, Object, Value, boolean

DEQUE = collections.deque
BASES: tuple[Any, ...] = (list, tuple, DEQUE)
LONGEST = 1_000_000  # items that a list may get by being repeated


def base_of(value: Value) -> Any:
    """Return which of list, tuple and deque the value's class is, or extends."""
    return next(base for base in BASES if issubclass(value.pytype, base))


def items_of(vm: Machine, value: Value) -> list[Value]:
    """Return the items as they are now; those that nothing has read yet are Lazy."""
    if value.__class__ is Known:
        return [lift(vm, item) for item in value.obj]
    assert value.__class__ is Object
    entity = vm.entity(value)
    if entity.items is None or entity.items.__class__ is Tail:
        if entity.real is MISSING:
            entity.items = []
        else:
            assert entity.source is not None
            appended = entity.items or ()
            real = list(base_of(value).__iter__(entity.real))  # past what a subclass says
            vm.guard(entity.source, "LENGTH", len(real))
            entity.items = [Lazy(type(item), Source("item", entity.source, at)) for at, item in enumerate(real)]
            entity.items += appended
            most = limit(vm, value) if appended and issubclass(value.pytype, DEQUE) else None
            if most is not None:
                del entity.items[: max(0, len(entity.items) - most)]
    items: list[Value] = entity.items
    return items


def limit(vm: Machine, value: Object) -> int | None:
    """Return the most items that a deque may hold; None if there is no limit."""
    entity = vm.entity(value)
    if entity.real is MISSING:
        return entity.payload_if(int)
    assert entity.source is not None
    found: int | None = vm.known(wrap(vm, entity.real.maxlen, Source("attr", entity.source, "maxlen")), "maxlen")
    return found


def read(vm: Machine, items: list[Value], index: int) -> Value:
    """Return an item, which is looked at first."""
    item = items[index]
    if item.__class__ is Lazy:
        item = items[index] = vm.look(item)
    return item


def write(vm: Machine, value: Object) -> list[Value]:
    """Return the items, to be changed in place."""
    items = items_of(vm, value)
    vm.effects.items(vm.entity(value))
    return items


@iterates(list, tuple)
def iterate(vm: Machine, value: Value) -> Iterator[Value]:
    """Yield the items by index, as Python does: what is appended meanwhile is seen."""
    items = items_of(vm, value)
    index = 0
    while index < len(items):
        yield read(vm, items, index)
        index += 1


def index_of(vm: Machine, key: Value) -> Any:
    """Return an index or a slice as a real object."""
    return vm.concretely(indexed(vm, key))


@models(list, "__getitem__")
@models(tuple, "__getitem__")
def getitem(vm: Machine, self: Value, key: Value) -> Value:
    if key.pytype is torch.Tensor:
        raise Break("data-dependent value", name="index")
    index = index_of(vm, key)
    items = items_of(vm, self)
    base = base_of(self)
    if isinstance(index, slice):
        try:
            wanted = range(len(items))[index]
        except (TypeError, ValueError) as error:
            raise vm.refused(error) from None
        if base is list:
            return vm.new(list, [items[i] for i in wanted])
        if self.pytype is tuple and wanted == range(len(items)):
            return self
        return vm.make_tuple([read(vm, items, i) for i in wanted])
    try:
        position = range(len(items))[operator.index(index)]
    except IndexError:
        raise vm.error(IndexError, f"{base.__name__} index out of range") from None
    except TypeError:
        raise vm.error(
            TypeError, f"{base.__name__} indices must be integers or slices, not {key.pytype.__name__}"
        ) from None
    return read(vm, items, position)


@models(list, "__len__")
@models(tuple, "__len__")
@models(DEQUE, "__len__")
def length(vm: Machine, self: Value) -> Value:
    return Known(len(items_of(vm, self)))


@models(DEQUE, "__bool__")  # which it has had in some versions
def is_filled(vm: Machine, self: Value) -> Value:
    return boolean(bool(items_of(vm, self)))


@models(list, "__contains__")
@models(tuple, "__contains__")
@models(DEQUE, "__contains__")
def contains(vm: Machine, self: Value, item: Value) -> Value:
    return boolean(any(same_or_equal(vm, other, item) for other in ITERATE[base_of(self)](vm, self)))


@models(list, "__add__")
@models(tuple, "__add__")
def concatenate(vm: Machine, self: Value, other: Value) -> Value:
    base = base_of(self)
    if not issubclass(other.pytype, base):
        return Known(NotImplemented)
    mine, theirs = list(iterate(vm, self)), list(iterate(vm, other))
    if base is list:
        return vm.new(list, [*mine, *theirs])
    for one, rest in ((other, mine), (self, theirs)):
        if not rest and one.pytype is tuple:
            return one
    return vm.make_tuple([*mine, *theirs])


@models(list, "__mul__", "__rmul__")
@models(tuple, "__mul__", "__rmul__")
def repeat(vm: Machine, self: Value, count: Value) -> Value:
    times = vm.concrete(indexed(vm, plainly(vm, count)))
    if not isinstance(times, int):
        return Known(NotImplemented)
    if times == 1 and self.pytype is tuple:
        return self
    repeated = times_over(list(iterate(vm, self)), times)
    return vm.new(list, repeated) if issubclass(self.pytype, list) else vm.make_tuple(repeated)


def times_over(items: list[Value], times: int) -> list[Value]:
    """Return the items repeated. Ends the graph where that would be too long."""
    if len(items) * times > LONGEST:
        raise Break("too long to follow", name="list")
    return items * times


@models(list, "__eq__")
@models(tuple, "__eq__")
def equal(vm: Machine, self: Value, other: Value) -> Value:
    base = base_of(self)
    if not issubclass(other.pytype, base):
        return Known(NotImplemented)
    left, right = items_of(vm, self), items_of(vm, other)
    if len(left) != len(right):
        return FALSE
    for index in itertools.count():
        if index >= min(len(left), len(right)):  # comparing may change them
            return boolean(len(left) == len(right))
        if not same_or_equal(vm, read(vm, left, index), read(vm, right, index)):
            ended = index >= min(len(left), len(right))  # emptied by the comparison: by length, then
            return boolean(ended and len(left) == len(right))
    return TRUE


models(list, "__ne__")(inverting(equal))
models(tuple, "__ne__")(inverting(equal))


def ordering(name: str, op: str) -> None:
    """Register a comparison: by the first items that are not equal; where there are none, by length."""

    def row(vm: Machine, self: Value, other: Value) -> Value:
        base = base_of(self)
        if not issubclass(other.pytype, base):
            return Known(NotImplemented)
        left, right = items_of(vm, self), items_of(vm, other)
        for index in itertools.count():
            if index >= min(len(left), len(right)):
                return vm.binary(op, Known(len(left)), Known(len(right)))
            a, b = read(vm, left, index), read(vm, right, index)
            if not same_or_equal(vm, a, b):
                return vm.binary(op, a, b)
        raise AssertionError("the end is reached above")

    for cls in (list, tuple):
        models(cls, name)(row)


for _name, _op in (("__lt__", "<"), ("__le__", "<="), ("__gt__", ">"), ("__ge__", ">=")):
    ordering(_name, _op)


@models(list, "index")
@models(tuple, "index")
def index(vm: Machine, self: Value, item: Value, *bounds: Value) -> Value:
    at = position(vm, self, item, *(vm.known(bound, "bound") for bound in bounds))
    if at is None:
        kind: Any = list if issubclass(self.pytype, list) else tuple
        raise refused_call(vm, kind.index, kind(), vm.concretely(item) if kind is list else None)
    return Known(at)


def position(vm: Machine, self: Value, item: Value, start: int = 0, stop: int = sys.maxsize) -> int | None:
    """Return the index of the first equal item, None if there is none, in a list that comparing may change."""
    at, stop = (max(0, bound + len(items_of(vm, self))) if bound < 0 else bound for bound in (start, stop))
    while at < min(stop, len(items_of(vm, self))):
        if same_or_equal(vm, read(vm, items_of(vm, self), at), item):
            return at
        at += 1
    return None


@models(list, "count")
@models(tuple, "count")
@models(DEQUE, "count")
def count(vm: Machine, self: Value, item: Value) -> Value:
    return Known(sum(same_or_equal(vm, other, item) for other in ITERATE[base_of(self)](vm, self)))


@models(tuple, "__new__")
def tuple_new(vm: Machine, cls: Known, items: Value | None = None) -> Value:
    if cls.obj is tuple and items is not None and items.pytype is tuple:
        return items
    values = [] if items is None else collect(vm, items, tuple)
    if cls.obj is tuple:
        return vm.make_tuple(values)
    return vm.new(cls.obj, values)


@models(tuple, "__init__")
def tuple_init(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    return NONE


@rebuilds(tuple)
def rebuild_tuple(emit: Emitter, entity: Entity) -> None:
    """Materialize a tuple, without the Python that says how one of a subclass is made, which has run."""
    if entity.pytype is not tuple:
        emit.function(plain_new(entity.pytype))
        emit.const(entity.pytype)
    for item in entity.items:
        emit.value(item)
    emit.op("BUILD", ("tuple", len(entity.items)))
    if entity.pytype is not tuple:
        emit.op("CALL", (2, ()))

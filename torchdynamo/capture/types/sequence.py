"""list and tuple (and their subclasses): items are read one by one, the length by itself."""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from torchdynamo._native import type_name
from torchdynamo.capture.types.pending_appends import Tail, tail
from torchdynamo.capture.types.pending_appends import replay as replay_tail
from torchdynamo.capture.vm import finalizers
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.model import Emitter, iterates, models, plain_new, rebuilds, replays
from torchdynamo.capture.vm.operators import opposite_of, same_or_equal
from torchdynamo.capture.vm.scalar_subclasses import indexed, plainly
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import FALSE, NONE, TRUE, Known, Lazy, Object, Value, boolean

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

LAST = Known(-1)


def items_of(vm: Machine, value: Value) -> list[Value]:
    """The items as they are now; those nothing has read yet are Lazy."""
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
            base = list if issubclass(value.pytype, list) else tuple
            real = list(base.__iter__(entity.real))  # past what a subclass says
            vm.guard(entity.source, "LENGTH", len(real))
            entity.items = [Lazy(type(item), Source("item", entity.source, at)) for at, item in enumerate(real)]
            entity.items += appended
    items: list[Value] = entity.items
    return items


def read(vm: Machine, items: list[Value], index: int) -> Value:
    """An item, looked at."""
    item = items[index]
    if item.__class__ is Lazy:
        item = items[index] = vm.look(item)
    return item


def write(vm: Machine, value: Object) -> list[Value]:
    """The items, to be changed in place."""
    items = items_of(vm, value)
    vm.effects.items(vm.entity(value))
    return items


@iterates(list, tuple)
def iterate(vm: Machine, value: Value) -> Iterator[Value]:
    """By index, as Python does: what is appended meanwhile is seen."""
    items = items_of(vm, value)
    index = 0
    while index < len(items):
        yield read(vm, items, index)
        index += 1


def index_of(vm: Machine, key: Value) -> Any:
    """An index or slice as Python has it."""
    return vm.concretely(indexed(vm, key))


@models(list, "__getitem__")
@models(tuple, "__getitem__")
def getitem(vm: Machine, self: Value, key: Value) -> Value:
    if key.pytype is torch.Tensor:
        raise Break("data-dependent value", name="index")
    index = index_of(vm, key)
    items = items_of(vm, self)
    base = list if issubclass(self.pytype, list) else tuple
    if isinstance(index, slice):
        try:
            wanted = range(len(items))[index]
        except (TypeError, ValueError) as error:
            raise vm.error(type(error), *error.args) from None
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
def length(vm: Machine, self: Value) -> Value:
    return Known(len(items_of(vm, self)))


@models(list, "__contains__")
@models(tuple, "__contains__")
def contains(vm: Machine, self: Value, item: Value) -> Value:
    return boolean(any(same_or_equal(vm, other, item) for other in iterate(vm, self)))


@models(list, "__add__")
@models(tuple, "__add__")
def concatenate(vm: Machine, self: Value, other: Value) -> Value:
    base = list if issubclass(self.pytype, list) else tuple
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


@models(list, "__eq__")
@models(tuple, "__eq__")
def equal(vm: Machine, self: Value, other: Value) -> Value:
    base = list if issubclass(self.pytype, list) else tuple
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


models(list, "__ne__")(opposite_of(equal))
models(tuple, "__ne__")(opposite_of(equal))


def ordering(name: str, op: str) -> None:
    """By the first items that are not equal; where there are none, by length."""

    def row(vm: Machine, self: Value, other: Value) -> Value:
        base = list if issubclass(self.pytype, list) else tuple
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
        kind = "list" if issubclass(self.pytype, list) else "tuple"
        raise vm.error(
            ValueError,
            f"{vm.concretely(item)!r} is not in list" if kind == "list" else "tuple.index(x): x not in tuple",
        )
    return Known(at)


def position(vm: Machine, self: Value, item: Value, start: int = 0, stop: int = sys.maxsize) -> int | None:
    """Where the item first is, in a list that comparing may change."""
    at, stop = (max(0, bound + len(items_of(vm, self))) if bound < 0 else bound for bound in (start, stop))
    while at < min(stop, len(items_of(vm, self))):
        if same_or_equal(vm, read(vm, items_of(vm, self), at), item):
            return at
        at += 1
    return None


@models(list, "count")
@models(tuple, "count")
def count(vm: Machine, self: Value, item: Value) -> Value:
    return Known(sum(same_or_equal(vm, other, item) for other in iterate(vm, self)))


@models(list, "append")
def append(vm: Machine, self: Object, item: Value) -> Value:
    items = tail(vm, self)
    (write(vm, self) if items is None else items).append(item)
    return NONE


@models(list, "extend")
def extend(vm: Machine, self: Object, items: Value) -> Value:
    more = list(vm.iterate(items))
    own = tail(vm, self)
    (write(vm, self) if own is None else own).extend(more)
    return NONE


@models(list, "__iadd__")
def iadd(vm: Machine, self: Object, items: Value) -> Value:
    extend(vm, self, items)
    return self


@models(list, "__imul__")
def imul(vm: Machine, self: Object, count: Value) -> Value:
    times = vm.concrete(indexed(vm, plainly(vm, count)))
    if not isinstance(times, int):
        raise vm.error(TypeError, f"can't multiply sequence by non-int of type {type_name(count.pytype)!r}")
    write(vm, self)[:] = times_over(list(iterate(vm, self)), times)
    return self


def times_over(items: list[Value], times: int) -> list[Value]:
    if len(items) * times > MOST:
        raise Break("too long to follow", name="list")
    return items * times


MOST = 1_000_000


@models(list, "insert")
def insert(vm: Machine, self: Object, at: Value, item: Value) -> Value:
    write(vm, self).insert(vm.known(indexed(vm, at), "index"), item)
    return NONE


@models(list, "pop")
def pop(vm: Machine, self: Object, at: Value = LAST) -> Value:
    items = write(vm, self)
    try:
        position = range(len(items))[vm.known(indexed(vm, at), "index")]
    except IndexError:
        raise vm.error(IndexError, "pop index out of range" if items else "pop from empty list") from None
    item = read(vm, items, position)
    del items[position]
    return item


@models(list, "remove")
def remove(vm: Machine, self: Object, item: Value) -> Value:
    at = position(vm, self, item)
    if at is None:
        raise vm.error(ValueError, "list.remove(x): x not in list")
    del write(vm, self)[at : at + 1]
    return NONE


@models(list, "clear")
def clear(vm: Machine, self: Object) -> Value:
    items = write(vm, self)
    finalizers.let_go(vm, *items)
    items.clear()
    return NONE


@models(list, "reverse")
def reverse(vm: Machine, self: Object) -> Value:
    write(vm, self).reverse()
    return NONE


@models(list, "copy")
def copy(vm: Machine, self: Object) -> Value:
    return vm.new(list, list(items_of(vm, self)))


def lying(items: list[Value], at: Any) -> list[Value]:
    """What is there now, at an index or a slice."""
    try:
        return items[at] if isinstance(at, slice) else [items[at]]
    except (IndexError, TypeError, ValueError):
        return []


@models(list, "__setitem__")
def setitem(vm: Machine, self: Object, key: Value, value: Value) -> Value:
    at = index_of(vm, key)
    items = write(vm, self)
    finalizers.let_go(vm, *lying(items, at))
    try:
        items[at] = list(vm.iterate(value)) if isinstance(at, slice) else value
    except (IndexError, ValueError, TypeError) as error:
        raise vm.error(type(error), *error.args) from None
    return NONE


@models(list, "__delitem__")
def delitem(vm: Machine, self: Object, key: Value) -> Value:
    at = index_of(vm, key)
    items = write(vm, self)
    finalizers.let_go(vm, *lying(items, at))
    try:
        del items[at]
    except (IndexError, TypeError) as error:
        raise vm.error(type(error), *error.args) from None
    return NONE


@models(list, "sort")
def sort(vm: Machine, self: Object, *, key: Value = NONE, reverse: Value = FALSE) -> Value:
    """Meanwhile the list is empty, and who writes to it is told; an error leaves it as far as it was sorted."""
    entity, values = vm.entity(self), list(iterate(vm, self))
    order = list(range(len(values)))
    vm.effects.items(entity)
    entity.items, mark = [], vm.effects.mark()
    try:
        put_in_order(vm, order, values, key, reverse)
        written = any(change.owner is entity for change in vm.effects.since(mark))
    finally:
        vm.effects.items(entity)
        entity.items = [values[at] for at in order]
    if written:
        raise vm.error(ValueError, "list modified during sort")
    return NONE


class SortKey:
    """A key for the host's sort, which asks the same questions in the same order as the program's."""

    __slots__ = ("value", "vm")

    def __init__(self, vm: Machine, value: Value) -> None:
        self.vm = vm
        self.value = value

    def __lt__(self, other: SortKey) -> bool:
        return self.vm.truth(self.vm.binary("<", self.value, other.value))


def sorted_values(vm: Machine, items: list[Value], key: Value, reverse: Value) -> list[Value]:
    """The items in order."""
    order = list(range(len(items)))
    put_in_order(vm, order, items, key, reverse)
    return [items[at] for at in order]


def put_in_order(vm: Machine, order: list[int], items: list[Value], key: Value, reverse: Value) -> None:
    """Sort positions by keys that are constants, or say themselves which is less."""
    keys = items if key.__class__ is Known and key.obj is None else [vm.call(key, [item], {}) for item in items]
    plain = all(each.__class__ is Known and type(each.obj) in PLAIN_KEYS for each in keys)
    real: list[Any] = [each.obj for each in keys] if plain else [SortKey(vm, each) for each in keys]  # type: ignore[union-attr]
    try:
        order.sort(key=real.__getitem__, reverse=vm.truth(reverse))
    except TypeError as error:
        if not plain:
            raise
        raise vm.error(TypeError, *error.args) from None


PLAIN_KEYS = (int, float, str, bool, bytes)


@models(list, "__init__")
def list_init(vm: Machine, self: Object, items: Value | None = None) -> Value:
    write(vm, self)[:] = [] if items is None else list(vm.iterate(items))
    return NONE


@models(list, "__new__")
def list_new(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    return vm.new(cls.obj, [])


@models(tuple, "__new__")
def tuple_new(vm: Machine, cls: Known, items: Value | None = None) -> Value:
    if cls.obj is tuple and items is not None and items.pytype is tuple:
        return items
    values = [] if items is None else list(vm.iterate(items))
    if cls.obj is tuple:
        return vm.make_tuple(values)
    return vm.new(cls.obj, values)


@models(tuple, "__init__")
def tuple_init(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    return NONE


@rebuilds(list)
def rebuild_list(emit: Emitter, entity: Entity) -> None:
    for item in entity.items or ():
        emit.value(item)
    emit.op("BUILD", ("list", len(entity.items or ())))
    if entity.pytype is not list:
        emit.instance(entity, "extend")


@rebuilds(tuple)
def rebuild_tuple(emit: Emitter, entity: Entity) -> None:
    """Exact tuples; those of other classes past what the class says in Python of how it is made, which has run."""
    if entity.pytype is not tuple:
        emit.function(plain_new(entity.pytype))
        emit.const(entity.pytype)
    for item in entity.items:
        emit.value(item)
    emit.op("BUILD", ("tuple", len(entity.items)))
    if entity.pytype is not tuple:
        emit.op("CALL", (2, ()))


def emptied(items: list[Any]) -> None:
    """Empty it; one that is being sorted looks empty, and Python wants to know that it was written to."""
    list.append(items, None)
    list.clear(items)


@replays(list)
def replay_list(emit: Emitter, entity: Entity) -> None:
    if entity.items.__class__ is Tail:
        replay_tail(emit, entity, list.extend)
        return
    if not entity.items:
        emit.function(emptied)
        emit.local(entity)
        emit.op("CALL", (1, ()))
        emit.op("POP")
        return
    emit.function(list.__setitem__)  # past what a subclass says
    emit.local(entity)
    emit.const(slice(None))
    for item in entity.items:
        emit.value(item)
    emit.op("BUILD", ("list", len(entity.items)))
    emit.op("CALL", (3, ()))
    emit.op("POP")

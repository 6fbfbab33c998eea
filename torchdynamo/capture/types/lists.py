"""list: what changes one, how it is sorted, made again and written back. Rows that only read are in sequence.py."""

from __future__ import annotations

import operator
from typing import Any

from torchdynamo.capture.types.pending_appends import Tail, tail
from torchdynamo.capture.types.pending_appends import replay as replay_tail
from torchdynamo.capture.types.sequence import (
    DEQUE,
    base_of,
    index_of,
    items_of,
    iterate,
    position,
    read,
    times_over,
    write,
)
from torchdynamo.capture.vm import finalizers
from torchdynamo.capture.vm.emitted_calls import push, replay_call
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.iteration import collect
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import MODELS, Emitter, models, rebuilds, replays
from torchdynamo.capture.vm.refused_operands import refused_operands
from torchdynamo.capture.vm.scalar_subclasses import indexed, plainly
from torchdynamo.core.value import FALSE, NONE, Known, Object, Value

LAST = Known(-1)


@models(list, "append")
def append(vm: Machine, self: Object, item: Value) -> Value:
    items = tail(vm, self)
    (write(vm, self) if items is None else items).append(item)
    return NONE


@models(list, "extend")
def extend(vm: Machine, self: Object, items: Value) -> Value:
    more = collect(vm, items)
    own = tail(vm, self)
    (write(vm, self) if own is None else own).extend(more)
    return NONE


@models(list, "__iadd__")
@models(DEQUE, "__iadd__")
def iadd(vm: Machine, self: Object, items: Value) -> Value:
    MODELS[base_of(self), "extend"](vm, self, items)
    return self


@models(list, "__imul__")
def imul(vm: Machine, self: Object, count: Value) -> Value:
    times = vm.concrete(indexed(vm, plainly(vm, count)))
    if not isinstance(times, int):
        return Known(NotImplemented)
    write(vm, self)[:] = times_over(list(iterate(vm, self)), times)
    return self


@models(list, "insert")
def insert(vm: Machine, self: Object, at: Value, item: Value) -> Value:
    where = integer_of(vm, at)
    write(vm, self).insert(where, item)
    return NONE


def integer_of(vm: Machine, at: Value) -> int:
    """Return an argument that is an index, and no slice. Raises the program's TypeError for what is no integer."""
    index = indexed(vm, at)
    if index.__class__ in (Known, Object) and not issubclass(index.pytype, int):
        raise refused_operands(vm, operator.index, index)
    return int(vm.known(index, "index"))


@models(list, "pop")
def pop(vm: Machine, self: Object, at: Value = LAST) -> Value:
    where, items = integer_of(vm, at), write(vm, self)
    try:
        position = range(len(items))[where]
    except IndexError:
        raise vm.error(IndexError, "pop index out of range" if items else "pop from empty list") from None
    item = read(vm, items, position)
    finalizers.let_go(vm, item)
    del items[position]
    return item


@models(list, "remove")
def remove(vm: Machine, self: Object, item: Value) -> Value:
    at = position(vm, self, item)
    if at is None:
        raise vm.error(ValueError, "list.remove(x): x not in list")
    items = write(vm, self)
    finalizers.let_go(vm, *items[at : at + 1])
    del items[at : at + 1]
    return NONE


@models(list, "clear")
def clear(vm: Machine, self: Object) -> Value:
    items = write(vm, self)
    finalizers.let_go(vm, *items)
    items.clear()
    return NONE


@models(list, "reverse")
@models(DEQUE, "reverse")
def reverse(vm: Machine, self: Object) -> Value:
    write(vm, self).reverse()
    return NONE


@models(list, "copy")
def copy(vm: Machine, self: Object) -> Value:
    return vm.new(list, list(items_of(vm, self)))


def items_at(items: list[Value], at: Any) -> list[Value]:
    """Return the items that are there now, at an index or a slice."""
    try:
        return items[at] if isinstance(at, slice) else [items[at]]
    except (IndexError, TypeError, ValueError):
        return []


@models(list, "__setitem__")
def setitem(vm: Machine, self: Object, key: Value, value: Value) -> Value:
    at = index_of(vm, key)
    items = write(vm, self)
    finalizers.let_go(vm, *items_at(items, at))
    try:
        items[at] = list(vm.iterate(value)) if isinstance(at, slice) else value
    except (IndexError, ValueError, TypeError) as error:
        raise vm.refused(error) from None
    return NONE


@models(list, "__delitem__")
def delitem(vm: Machine, self: Object, key: Value) -> Value:
    at = index_of(vm, key)
    items = write(vm, self)
    finalizers.let_go(vm, *items_at(items, at))
    try:
        del items[at]
    except (IndexError, TypeError) as error:
        raise vm.refused(error) from None
    return NONE


@models(list, "sort")
def sort(vm: Machine, self: Object, *, key: Value = NONE, reverse: Value = FALSE) -> Value:
    """Sort the list, which looks empty meanwhile. An error leaves it as far as it was sorted; a write is an error."""
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
    """Compare two keys for the host's sort, which asks what the program's sort asks, in that order."""

    __slots__ = ("value", "vm")

    def __init__(self, vm: Machine, value: Value) -> None:
        self.vm = vm
        self.value = value

    def __lt__(self, other: SortKey) -> bool:
        return self.vm.truth(self.vm.binary("<", self.value, other.value))


def sorted_values(vm: Machine, items: list[Value], key: Value, reverse: Value) -> list[Value]:
    """Return the items in order."""
    order = list(range(len(items)))
    put_in_order(vm, order, items, key, reverse)
    return [items[at] for at in order]


def put_in_order(vm: Machine, order: list[int], items: list[Value], key: Value, reverse: Value) -> None:
    """Sort positions by keys that are constants, or that are compared by the program."""
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
    write(vm, self)[:] = [] if items is None else collect(vm, items)
    return NONE


@models(list, "__new__")
@models(DEQUE, "__new__")
def list_new(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    return vm.new(cls.obj, [])


@rebuilds(list)
def rebuild_list(emit: Emitter, entity: Entity) -> None:
    push(emit, entity.items or [])
    if entity.pytype is not list:
        emit.instance(entity, "extend")


def empty(items: list[Any]) -> None:
    """Empty a list; one that is being sorted looks empty, and Python wants to know that it was written to."""
    list.append(items, None)
    list.clear(items)


@replays(list)
def replay_list(emit: Emitter, entity: Entity) -> None:
    if entity.items.__class__ is Tail:
        replay_tail(emit, entity, list.extend)
    elif not entity.items:
        replay_call(emit, empty, entity)
    else:
        replay_call(emit, list.__setitem__, entity, slice(None), entity.items)  # past what a subclass says

"""set and frozenset: contents are looked at as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.heap import MISSING, Entity
from torchdynamo.capture.model import Emitter, enters, iterates, models, rebuilds, replays
from torchdynamo.capture.signals import Break
from torchdynamo.capture.source import Source
from torchdynamo.capture.types.mapping import sourceable
from torchdynamo.capture.value import NONE, Known, Object, Value, boolean

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine

Items = dict[Any, Value]


@enters(frozenset)
def enter_frozenset(vm: Machine, obj: Any, source: Source) -> Value:
    if type(obj) is not frozenset or not all(sourceable(item) for item in obj):
        raise Break("unsupported type", type=type(obj).__name__)
    vm.guard(source, "TYPE_MATCH", frozenset)
    vm.guard(source, "SET_CONTENTS", obj)
    return Known(obj, source)


def items_of(vm: Machine, value: Object) -> Items:
    entity = vm.entity(value)
    if entity.items is None:
        entity.items = {}
        if entity.real is not MISSING:
            assert entity.source is not None
            real = list(set.__iter__(entity.real))
            if not all(sourceable(item) for item in real):
                raise Break("unsupported key", type="object")
            vm.guard(entity.source, "SET_CONTENTS", frozenset(real))
            entity.items = {item: Known(item) for item in real}
    items: Items = entity.items
    return items


def write(vm: Machine, value: Object) -> Items:
    items = items_of(vm, value)
    vm.entity(value).touched = True
    return items


def keys(vm: Machine, values: Value) -> Items:
    """Any iterable as set items."""
    if values.__class__ is Object and issubclass(values.pytype, set):
        return items_of(vm, values)
    return {vm.hkey(item): item for item in vm.iterate(values)}


@iterates(set)
def iterate(vm: Machine, value: Object) -> Iterator[Value]:
    """In the order a real set of these items would have; that is only known for constants."""
    items = items_of(vm, value)
    if len(items) > 1 and not all(item.__class__ is Known for item in items.values()):
        raise Break("unsupported method", name="__iter__", type="set")
    entity = vm.entity(value)
    order = list(entity.real) if entity.real is not MISSING and not entity.touched else list(set(items))
    return iter([items[key] for key in order])


@models(set, "__contains__")
def contains(vm: Machine, self: Object, item: Value) -> Value:
    return boolean(vm.hkey(item) in items_of(vm, self))


@models(set, "__len__")
def length(vm: Machine, self: Object) -> Value:
    return Known(len(items_of(vm, self)))


@models(set, "add")
def add(vm: Machine, self: Object, item: Value) -> Value:
    write(vm, self).setdefault(vm.hkey(item), item)
    return NONE


@models(set, "discard")
def discard(vm: Machine, self: Object, item: Value) -> Value:
    write(vm, self).pop(vm.hkey(item), None)
    return NONE


@models(set, "remove")
def remove(vm: Machine, self: Object, item: Value) -> Value:
    if write(vm, self).pop(vm.hkey(item), None) is None:
        raise vm.error(KeyError, vm.concrete(item))
    return NONE


@models(set, "clear")
def clear(vm: Machine, self: Object) -> Value:
    write(vm, self).clear()
    return NONE


@models(set, "copy")
def copy(vm: Machine, self: Object) -> Value:
    return vm.new(set, dict(items_of(vm, self)))


@models(set, "update", "__ior__")
def update(vm: Machine, self: Object, *others: Value) -> Value:
    for other in others:
        for key, item in keys(vm, other).items():
            write(vm, self).setdefault(key, item)
    return self


def combine(names: str, keep: Any) -> None:
    def row(vm: Machine, self: Value, *others: Value) -> Value:
        mine = dict(keys(vm, self))
        for other in others:
            mine = keep(mine, keys(vm, other))
        return vm.new(set, mine)

    for name in names.split():
        models(set, name)(row)


combine("union __or__ __ror__", lambda a, b: {**b, **a})
combine("intersection __and__ __rand__", lambda a, b: {k: v for k, v in a.items() if k in b})
combine("difference __sub__", lambda a, b: {k: v for k, v in a.items() if k not in b})
combine("symmetric_difference __xor__", lambda a, b: {k: v for k, v in {**a, **b}.items() if (k in a) != (k in b)})


def relation(names: str, holds: Any) -> None:
    def row(vm: Machine, self: Value, other: Value) -> Value:
        if other.__class__ is not Object and not (other.__class__ is Known and isinstance(other.obj, frozenset)):
            return Known(NotImplemented)
        return boolean(holds(set(keys(vm, self)), set(keys(vm, other))))

    for name in names.split():
        models(set, name)(row)


relation("issubset __le__", lambda a, b: a <= b)
relation("issuperset __ge__", lambda a, b: a >= b)
relation("isdisjoint", lambda a, b: a.isdisjoint(b))
relation("__eq__", lambda a, b: a == b)
relation("__ne__", lambda a, b: a != b)
relation("__lt__", lambda a, b: a < b)
relation("__gt__", lambda a, b: a > b)


@models(set, "__new__")
def new(vm: Machine, cls: Known, *args: Value) -> Value:
    return vm.new(cls.obj, {})


@models(set, "__init__")
def init(vm: Machine, self: Object, items: Value | None = None) -> Value:
    if items is not None:
        update(vm, self, items)
    return NONE


@models(frozenset, "__new__")
def frozen_new(vm: Machine, cls: Known, items: Value | None = None) -> Value:
    return Known(cls.obj(vm.concretely(item) for item in vm.iterate(items)) if items is not None else cls.obj())


@rebuilds(set)
def rebuild(emit: Emitter, entity: Entity) -> None:
    for item in (entity.items or {}).values():
        emit.value(item)
    emit.op("BUILD", ("set", len(entity.items or {})))
    if entity.pytype is not set:
        emit.instance(entity, "update")


@replays(set)
def replay(emit: Emitter, entity: Entity) -> None:
    for item in entity.items.values():
        emit.value(item)
    emit.op("BUILD", ("set", len(entity.items)))
    for method, count in (("clear", 0), ("update", 1)):
        emit.function(getattr(set, method))
        emit.local(entity)
        if count:
            emit.op("COPY", 4)
        emit.op("CALL", (count + 1, ()))
        emit.op("POP")
    emit.op("POP")

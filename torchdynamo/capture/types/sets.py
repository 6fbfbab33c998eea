"""set and frozenset: contents are looked at as a whole, and so is their order where something depends on it.

Of their order, see `set_orders.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torchdynamo.capture.types import weakrefs
from torchdynamo.capture.types.checked_iterators import CheckedIterator
from torchdynamo.capture.types.items import items_of as dict_items_of
from torchdynamo.capture.types.items import whole
from torchdynamo.capture.types.keys import by_code, entry_key, key_error, sourceable
from torchdynamo.capture.types.set_members import guarded_members, holds, holds_objects, is_unread
from torchdynamo.capture.types.set_orders import is_set, keys_in_order, order_giving, real_item, record_change
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import BUILD_SET, CONSTANT_ITEMS, COPY, HASHED, MODELS, enters, iterates, models
from torchdynamo.capture.vm.process_settings import note_order
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.signals import Break, Raised
from torchdynamo.core.source import Source
from torchdynamo.core.value import NONE, Known, Object, Symbol, Value, boolean

Items = dict[Any, Value]


def guard_order(vm: Machine, source: Source, real: Any) -> None:
    """Guard the order of a set, by its text."""
    if len(real) > 1:
        if type(real) not in (set, frozenset) or any(type(item) not in TELLING for item in real):
            raise Break("unsupported method", name="__iter__", type=type(real).__name__)
        vm.guard(Source("method", source, "__repr__"), "EQUALS_MATCH", repr(real))


TELLING = (int, str, float, bool, bytes, type(None), *weakrefs.KINDS)  # equal texts, equal items


@enters(frozenset)
def enter_frozenset(vm: Machine, obj: Any, source: Source) -> Value:
    if type(obj) is not frozenset or not (all(map(sourceable, obj)) or holds_objects(obj)):
        raise Break("unsupported type", type=type(obj).__name__)
    vm.guard(source, "TYPE_MATCH", frozenset)
    if holds_objects(obj):
        return vm.heap.adopt(obj, source)
    vm.guard(source, "SET_CONTENTS", obj)
    return Known(obj, source)


@CONSTANT_ITEMS.register(frozenset)
def frozen_items(vm: Machine, value: Known) -> Iterator[Value]:
    """Return the items of a constant, in its order, which is guarded: equal sets may have another."""
    if value.source is not None:
        guard_order(vm, value.source, value.obj)
    elif len(value.obj) > 1:
        note_order(vm.heap, value.obj)
    return (lift(vm, item) for item in value.obj)


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
            entity.items = dict(entry_item(vm, item) for item in real)
            entity.entry_items = dict(entity.items)
    items: Items = entity.items
    return items


def entry_item(vm: Machine, item: Any) -> tuple[Any, Value]:
    """Return an item that was there at entry, with its key. The referent of a weak reference is looked at."""
    value = entry_key(vm, item)[1]
    if value is None:  # to something that is gone
        raise Break("unsupported key", type=type(item).__name__)
    return vm.hkey(value), value


def fresh(vm: Machine, cls: type, items: Items, order: set[Any] | None) -> Object:
    """Make a set of the frame. `order` is a real set with its history; None if that cannot be known."""
    return vm.new(cls, items, payload=order)


def empty(vm: Machine, cls: type) -> Object:
    """Make an empty set of the frame."""
    order: set[Any] = set()
    vm.heap.in_turn.append(order)
    return fresh(vm, cls, {}, order)


@BUILD_SET.register(set)
def build(vm: Machine, values: Iterable[Value]) -> Object:
    """Make a set of values, put in one after the other."""
    made = empty(vm, set)
    for value in values:
        add(vm, made, value)
    return made


def order_of(vm: Machine, value: Value) -> set[Any] | None:
    """Return a real set of the same order; None if that is not known."""
    if value.__class__ is not Object:
        return vm.known(value, "set")
    entity = vm.entity(value)
    if entity.fresh:
        return entity.payload_if(set)
    if entity.touched or entity.source is None:
        return None
    guard_order(vm, entity.source, entity.real)
    return entity.real


def write(vm: Machine, value: Object, more: Iterable[Any] = ()) -> Items:
    """Return the items, to be changed.

    Ends the graph for keys that are hashed by code, which a replay would run again.
    """
    items, entity = items_of(vm, value), vm.entity(value)
    if not entity.fresh and any(by_code(key) for key in more):
        raise Break("unsupported key", type="object")
    vm.effects.items(entity)
    entity.version += 1
    return items


def keys(vm: Machine, values: Value) -> Items:
    """Return the items of any iterable as a set's; those of sets and dicts are not hashed again."""
    if values.__class__ is Object and issubclass(values.pytype, set):
        return items_of(vm, values)
    if values.__class__ is Object and values.pytype is dict and vm.entity(values).payload is None:
        whole(vm, values)
        return {key: item or NONE for key, (item, _) in dict_items_of(vm, values).items()}
    found = ((vm.hkey(item), item) for item in vm.iterate(values))
    return {key: settled(item, key) for key, item in found}


def settled(item: Value, key: Any) -> Value:
    """Return a number of the graph as the constant that hashing has made it; other items as they are."""
    return Known(key) if item.__class__ is Symbol else item


def in_order(vm: Machine, values: Value, items: Items) -> Any:
    """Return what a real set would be given in place of the values: of the same kind where that decides the order."""
    if is_set(values):
        constant = all(item.__class__ is Known for item in items.values())
        made = values.__class__ is Object and vm.entity(values).fresh
        return order_of(vm, values) if constant or made else None
    given = [real_item(vm, key, item) for key, item in items.items()]
    if any(each is MISSING for each in given):
        return None
    return dict.fromkeys(given) if issubclass(values.pytype, dict) else given


@iterates(set)
def iterate(vm: Machine, value: Object) -> Iterator[Value]:
    """Return an iterator in the order that a real set would have."""
    items = items_of(vm, value)
    if len(items) < 2:
        order: Any = list(items)
    elif vm.entity(value).fresh or all(item.__class__ is Known for item in items.values()):
        order = order_of(vm, value)
        order = None if order is None else keys_in_order(vm, items, order, guarded=not vm.entity(value).fresh)
    else:
        order = items if order_of(vm, value) is not None else None
    if order is None:
        raise Break("unsupported method", name="__iter__", type="set")
    return steps(vm, value, list(order))


def steps(vm: Machine, value: Object, order: list[Any]) -> Iterator[Value]:
    items = items_of(vm, value)
    found = [items[key] for key in order]
    return CheckedIterator(vm, value, found, lambda item: item, lambda: len(items_of(vm, value)), CHANGED)


CHANGED = "Set changed size during iteration"


@HASHED.register(set)
def hashed(vm: Machine, value: Object) -> list[tuple[Any, Value]]:
    """Return the items in order, each with the key that it was found by."""
    by_value = {id(item): key for key, item in items_of(vm, value).items()}
    return [(by_value[id(item)], item) for item in iterate(vm, value)]


@models(set, "__contains__")
def contains(vm: Machine, self: Object, item: Value) -> Value:
    key = searched(vm, item)
    return boolean(holds(vm, self, key, item) if is_unread(vm, self) else key in items_of(vm, self))


@models(frozenset, "__contains__")
def frozen_contains(vm: Machine, self: Value, item: Value) -> Value:
    """Look for an item in a constant, or in a frozenset of objects that was there."""
    if self.__class__ is not Known:
        return contains(vm, vm.as_object(self), item)
    if item.__class__ is Known:
        return vm.run_pure(frozenset.__contains__, [self, item], {})
    return boolean(searched(vm, item) in {vm.hkey(lift(vm, each)) for each in self.obj})


def searched(vm: Machine, item: Value) -> Any:
    """Return the key of an item that a set is searched for: that of a set, which has no hash, is a frozenset's."""
    try:
        return vm.hkey(item)
    except Raised as raised:
        if not (issubclass(item.pytype, set) and issubclass(raised.value.pytype, TypeError)):
            raise
        return vm.hkey(vm.call(Known(frozenset), [item], {}))


@models(set, "__len__")
def length(vm: Machine, self: Object) -> Value:
    return Known(len(guarded_members(vm, self) if is_unread(vm, self) else items_of(vm, self)))


@models(frozenset, "__len__")
def frozen_length(vm: Machine, self: Value) -> Value:
    return Known(len(self.obj)) if self.__class__ is Known else length(vm, vm.as_object(self))


@models(set, "add")
def add(vm: Machine, self: Object, item: Value) -> Value:
    key = vm.hkey(item)
    item = settled(item, key)
    items, entity = write(vm, self, (key,)), vm.entity(self)
    size = len(items)
    items.setdefault(key, item)
    if len(items) == size:
        entity.version -= 1  # it was there
    else:
        record_change(vm, self, "add", key, item)
    return NONE


@models(set, "discard")
def discard(vm: Machine, self: Object, item: Value) -> Value:
    take_out(vm, self, searched(vm, item))
    return NONE


def take_out(vm: Machine, self: Object, key: Any) -> bool:
    """Remove an item; return whether it was there."""
    items, entity = write(vm, self), vm.entity(self)
    found = items.pop(key, None)
    if found is None:
        entity.version -= 1
        return False
    record_change(vm, self, "discard", key, found)
    return True


@models(set, "pop")
def pop(vm: Machine, self: Object) -> Value:
    """Remove and return the item that a real set of the same history pops."""
    if not items_of(vm, self):
        raise vm.error(KeyError, "pop from an empty set")
    entity = vm.entity(self)
    order = entity.payload_if(set) if entity.fresh else None
    if order is None:
        raise Break("unsupported method", name="pop", type="set")
    (first,) = keys_in_order(vm, items_of(vm, self), [order.pop()])
    vm.heap.thinned.append(order)
    return write(vm, self).pop(first)


@models(set, "remove")
def remove(vm: Machine, self: Object, item: Value) -> Value:
    if not take_out(vm, self, searched(vm, item)):
        raise key_error(vm, item)
    return NONE


@models(set, "clear")
def clear(vm: Machine, self: Object) -> Value:
    write(vm, self).clear()
    if vm.entity(self).fresh:
        vm.entity(self).payload = set()
    else:
        record_change(vm, self, "clear")
    return NONE


@models(set, "copy")
def copy(vm: Machine, self: Object) -> Value:
    order = order_of(vm, self)
    return fresh(vm, set, dict(items_of(vm, self)), None if order is None else set(order))


@models(set, "__new__")
def new(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    if cls.obj is set and kwargs:
        raise vm.error(TypeError, "set() takes no keyword arguments")
    return empty(vm, cls.obj)


@models(set, "__init__")
def init(vm: Machine, self: Object, items: Value | None = None) -> Value:
    if items_of(vm, self):
        clear(vm, self)
    if items is not None:
        MODELS[set, "update"](vm, self, items)
    return NONE


@models(frozenset, "__new__")
def frozen_new(vm: Machine, cls: Known, items: Value | None = None) -> Value:
    if cls.obj is not frozenset:
        raise Break("unsupported type", type=cls.obj.__name__)
    if items is None:
        return Known(frozenset())
    if items.__class__ is Known and items.pytype is frozenset:
        return items
    given = keys(vm, items)
    for item in given.values():
        vm.concretely(item)
    order = in_order(vm, items, given)
    if order is None and len(given) > 1:
        raise Break("unsupported type", type="frozenset")
    return Known(frozenset(given if order is None else order))


@COPY.register(set)
def real_copy(vm: Machine, value: Object) -> set[Any]:
    """Return a real set of constants, in the same order."""
    items = [vm.concretely(item) for item in iterate(vm, value)]
    found = order_giving(vm.heap, items, items)
    if found is None:
        raise Break("unsupported argument", what="argument", type="set")
    return set(found)

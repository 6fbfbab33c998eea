"""dict filled from others: update, `|`, copy, fromkeys, what it is called with, and all items of any mapping."""

from __future__ import annotations

import collections
from typing import Any

from torchdynamo.capture.types.items import each_item, items_of, store, store_under
from torchdynamo.capture.vm import model
from torchdynamo.capture.vm.lookup import guarded_slot
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import find_slot, models
from torchdynamo.capture.vm.raising import refused_call
from torchdynamo.core.signals import Break, Raised
from torchdynamo.core.value import NONE, Known, Object, Value

NUMBERS = (int, float, bool, type(None))


@model.PAIRS.register(dict)
def pairs(vm: Machine, value: Value) -> list[tuple[Value, Value]]:
    """Return all items of a mapping; a dict's own, where its class has no methods that say what it holds."""
    if value.__class__ is Object and issubclass(value.pytype, dict) and not has_reading_methods(vm, value.pytype):
        return [(key, item) for _, key, item in each_item(vm, value)]
    return items_by_methods(vm, value)


@models(dict, "copy")
def copy(vm: Machine, self: Object) -> Object:
    made = vm.new(dict, {})
    update_from(vm, made, self)
    return made


@models(dict, "__ior__")
def in_place_or(vm: Machine, self: Object, other: Value) -> Value:
    update(vm, self, other)
    return self


@models(dict, "update")
def update(vm: Machine, self: Object, /, *others: Value, **kwargs: Value) -> Value:
    return fill(vm, self, "update", others, kwargs)


def too_many(vm: Machine, cls: type, name: str, count: int) -> Raised:
    """Return Python's error for too many arguments, which differs for an OrderedDict."""
    kind: Any = collections.OrderedDict if issubclass(cls, collections.OrderedDict) else dict
    return refused_call(vm, kind.update if name == "update" else kind.__init__, kind(), *[()] * count)


def fill(vm: Machine, self: Object, name: str, others: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
    """Put items into a dict as `update` and `__init__` do, of mappings, pairs and keywords."""
    if len(others) > 1:
        raise too_many(vm, self.pytype, name, len(others))
    for other in others:
        if other.__class__ is Object and issubclass(other.pytype, dict):
            update_from(vm, self, other)
        elif other.__class__ is Object and find_slot(other.pytype, "keys")[0] != "missing":
            for key, item in vm.dict_items(other):
                put(vm, self, key, item)
        else:
            for at, pair in enumerate(vm.iterate(other)):
                put(vm, self, *key_and_item(vm, at, pair))
    for name, item in kwargs.items():
        put(vm, self, Known(name), item)
    return NONE


def key_and_item(vm: Machine, at: int, pair: Value) -> list[Value]:
    """Return a key and its item, of a pair that `update` was given."""
    if pair.pytype in NUMBERS:
        raise refused_call(vm, dict, [((), ())] * at + [0])
    items = list(vm.iterate(pair))
    if len(items) != 2:
        raise vm.error(ValueError, f"dictionary update sequence element #{at} has length {len(items)}; 2 is required")
    return items


def update_from(vm: Machine, self: Object, other: Object) -> None:
    """Put a dict's items into another; keys are not hashed again, unless methods of the other say what it holds."""
    if has_reading_methods(vm, other.pytype):
        for key, item in items_by_methods(vm, other):
            put(vm, self, key, item)
        return
    entity = vm.entity(other)
    version = entity.version
    for hkey, key, item in each_item(vm, other):
        if entity.version != version and other.ref != self.ref:
            raise Break("unknown iterator", type="dict that changes")
        if issubclass(self.pytype, collections.OrderedDict):
            vm.setitem(self, key, item)
        else:
            store_under(vm, self, key, hkey, item)


def has_reading_methods(vm: Machine, cls: type) -> bool:
    """Return whether Python asks a dict of that class for `keys()` and each item, instead of reading its table."""
    ordered = issubclass(cls, collections.OrderedDict)
    names = ("__iter__", "keys", "__getitem__") if ordered else ("__iter__",)
    return cls is not dict and any(guarded_slot(vm, cls, name)[0] == "python" for name in names)


def items_by_methods(vm: Machine, other: Value) -> list[tuple[Value, Value]]:
    """Return the items of a mapping, by its own methods."""
    keys = list(vm.iterate(vm.call_method(other, "keys")))
    return [(key, vm.getitem(other, key)) for key in keys]


def put(vm: Machine, self: Object, key: Value, item: Value) -> None:
    """Write an item as `update` does: an OrderedDict goes through the class's `__setitem__`, a dict past it."""
    if issubclass(self.pytype, collections.OrderedDict):
        vm.setitem(self, key, item)
    else:
        store(vm, self, key, item)


@models(dict, "__or__")
def union(vm: Machine, self: Value, other: Value) -> Value:
    """Return `a | b`: a dict, whatever both are; classes of collections give their own."""
    if not (issubclass(self.pytype, dict) and issubclass(other.pytype, dict)):
        return Known(NotImplemented)
    box = vm.as_object(self)
    made = vm.as_object(vm.call_method(box, "copy") if kept_class(box.pytype) else copy(vm, box))
    update(vm, made, other)
    return made


def kept_class(cls: type) -> bool:
    return issubclass(cls, (collections.OrderedDict, collections.defaultdict))


@models(dict, "fromkeys")
def fromkeys(vm: Machine, cls: Value, keys: Value, value: Value = NONE) -> Value:
    """Store keys in what calling the class gives. A dict takes keys of dicts and sets without hashing them again."""
    made = vm.call(cls, [], {})
    if made.__class__ is Object and made.pytype is dict and keys.__class__ is Object and not items_of(vm, made):
        hashed = model.HASHED.get(keys.pytype)
        if hashed is not None:
            for hkey, key in hashed(vm, keys):
                store_under(vm, made, key, hkey, value)
            return made
    for key in vm.iterate(keys):
        vm.setitem(made, key, value)
    return made


@models(dict, "__init__")
def init(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    return fill(vm, self, "dict", args, kwargs)

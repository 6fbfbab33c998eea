"""dict and its subclasses, and an instance's `__dict__`; what is in them: items.py."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

from torchdynamo.capture.types import identity
from torchdynamo.capture.types.counter_keys import holds_running_key
from torchdynamo.capture.types.items import (
    Partly,
    each_entry,
    enter_item,
    found_under,
    holds_plain,
    items_of,
    items_to_write,
    keys_of,
    looked_at,
    lookup,
    push_items,
    remove,
    store,
    store_under,
    was_there,
    whole,
)
from torchdynamo.capture.types.keys import as_key, by_code, key_error, known_key, source_of_key, sourceable
from torchdynamo.capture.types.weakrefs import Weakly
from torchdynamo.capture.vm import finalizers, model, namespaces
from torchdynamo.capture.vm.dict_aliases import OfInstance, note_items_write
from torchdynamo.capture.vm.emitted_calls import refill
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.lookup import guarded_lookup
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, find_slot, iterates, models, rebuilds, replays
from torchdynamo.capture.vm.operators import same_or_equal
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.value import FALSE, NONE, TRUE, Known, Object, Value, boolean


@model.INSTANCE_DICT.register(dict)
def of_instance(vm: Machine, owner: Object) -> Value:
    entity = vm.entity(owner)
    known = entity.loaded.get("__dict__")
    if known is None:
        own = namespaces.own_attributes(vm, entity)
        there = own is not None and entity.source is not None
        made = vm.wrap(own, namespaces.dict_source(entity)) if there else vm.new(dict, payload=OfInstance(owner))
        known = entity.loaded["__dict__"] = made
    return known


@iterates(dict)
def iterate(vm: Machine, value: Object) -> Iterator[Value]:
    return keys_of(vm, value)


@models(dict, "__getitem__")
def getitem(vm: Machine, self: Object, key: Value) -> Value:
    found = lookup(vm, self, key)
    if found is not None:
        return found
    guarded_lookup(vm, self.pytype, "__missing__")
    missing = find_slot(self.pytype, "__missing__")
    if missing[0] != "missing":
        return vm.special(self, "__missing__", key)
    raise key_error(vm, key)


@models(dict, "__setitem__")
def setitem(vm: Machine, self: Object, key: Value, item: Value) -> Value:
    store(vm, self, key, item)
    return NONE


@models(dict, "__delitem__")
def delitem(vm: Machine, self: Object, key: Value) -> Value:
    gone = remove(vm, self, key)
    if gone is None:
        raise key_error(vm, key)
    finalizers.let_go(vm, gone)
    return NONE


@models(dict, "__contains__", "has_key")
def contains(vm: Machine, self: Object, key: Value) -> Value:
    entity = vm.entity(self)
    running = holds_running_key(vm, entity, key)
    if running is not None:
        return boolean(running)
    hkey = vm.hkey(key)
    if entity.real is not MISSING and entity.payload is None and not entity.touched and entity.source is not None:
        if hkey.__class__ is Weakly or source_of_key(vm, key) is not None:
            return boolean(lookup(vm, self, key) is not None)
        if identity.is_new_number(vm, key):
            return boolean(False)
        if identity.is_id(vm, key):  # of which all that is known is what it is the id of
            return boolean(hkey in whole(vm, self))
        if not sourceable(as_key(key, hkey)):
            if key.pytype is tuple and identity.holds_id(vm, key):
                identity.retry_with_ids_guarded(vm)
            raise Break("unsupported key", type=key.pytype.__name__)
        present = was_there(entity.real, hkey)
        vm.guard(entity.source, "HAS_KEY" if present else "NO_KEY", hkey)
        return boolean(present)
    if entity.payload.__class__ is OfInstance or entity.items.__class__ is Partly:
        return boolean(lookup(vm, self, key) is not None)
    return boolean(hkey in items_of(vm, self))


@models(dict, "__len__")
def length(vm: Machine, self: Object) -> Value:
    entity = vm.entity(self)
    if entity.real is not MISSING and not entity.touched and entity.payload is None:
        assert entity.source is not None
        vm.guard(entity.source, "LENGTH", dict.__len__(entity.real))
        return Known(dict.__len__(entity.real))
    if entity.items.__class__ is Partly:
        assert entity.source is not None
        vm.guard(entity.source, "LENGTH", dict.__len__(entity.real))
    return Known(len(items_of(vm, self)))


@models(dict, "get")
def get(vm: Machine, self: Object, key: Value, default: Value = NONE) -> Value:
    found = lookup(vm, self, key)
    return default if found is None else found


@models(dict, "setdefault")
def setdefault(vm: Machine, self: Object, key: Value, default: Value = NONE) -> Value:
    entity, hkey = vm.entity(self), vm.hkey(key)
    if entity.payload.__class__ is OfInstance or (entity.real is not MISSING and not entity.touched):
        held = found_under(vm, self, key, hkey)
        if held is None:
            store_under(vm, self, key, hkey, default)
        return default if held is None else held
    return looked_at(vm, entity, enter_item(vm, self, key, hkey, default), key, hkey)


@models(dict, "pop")
def pop(vm: Machine, self: Object, key: Value, default: Value | None = None) -> Value:
    found = remove(vm, self, key)
    if found is not None:
        finalizers.let_go(vm, found)
        return found
    if default is None:
        raise key_error(vm, key)
    return default


@models(dict, "popitem")
def popitem(vm: Machine, self: Object, last: Value = TRUE) -> Value:
    entity = vm.entity(self)
    if entity.payload.__class__ is OfInstance:
        raise Break("unsupported method", name="popitem", type="dict")
    entries = each_entry(vm, self)
    if not entries:
        ordered = issubclass(self.pytype, collections.OrderedDict)
        raise vm.error(KeyError, "dictionary is empty" if ordered else "popitem(): dictionary is empty")
    hkey, found = entries[-1 if vm.truth(last) else 0]
    key = known_key(found)
    item = looked_at(vm, entity, found, key, hkey)
    finalizers.let_go(vm, key, item)
    del items_to_write(vm, self)[hkey]
    entity.version += 1
    return vm.make_tuple([key, item])


@models(dict, "__ne__")
def different(vm: Machine, self: Object, other: Value) -> Value:
    same = vm.special(self, "__eq__", other)
    return same if same.obj is NotImplemented else boolean(not same.obj)  # type: ignore[union-attr]


@models(dict, "clear")
def clear(vm: Machine, self: Object) -> Value:
    entity = vm.entity(self)
    if entity.payload.__class__ is OfInstance:
        for key in list(keys_of(vm, self)):
            remove(vm, self, key)
    elif clears_plain_items(vm, entity):
        pass
    elif items_to_write(vm, self):
        finalizers.let_go(vm, *(item for _, item in entity.items.values()))
        entity.items.clear()
        entity.version += 1
    return NONE


def clears_plain_items(vm: Machine, entity: Entity) -> bool:
    """Clear a dict that existed, of which nobody has asked what is in it.

    Return False, and do nothing, where it holds more than numbers and strings, whose end might be noticed.
    """
    if entity.source is None or entity.touched or entity.payload is not None or not holds_plain(entity.real):
        return False
    note_items_write(vm, entity)
    vm.guard(entity.source, "PLAIN_ITEMS", None)
    vm.effects.items(entity)
    entity.items = {}
    entity.version += 1
    return True


@models(dict, "__eq__")
def equal(vm: Machine, self: Object, other: Value) -> Value:
    if not issubclass(other.pytype, dict) or other.__class__ is not Object:
        return Known(NotImplemented)
    left, right = each_entry(vm, self), whole(vm, other)
    if len(left) != len(right):
        return FALSE
    for hkey, found in left:
        key = known_key(found)
        match = right.get(hkey)
        if match is None:
            return FALSE
        item = looked_at(vm, vm.entity(self), found, key, hkey)
        if not same_or_equal(vm, looked_at(vm, vm.entity(other), match, key, hkey), item):
            return FALSE
    return TRUE


@model.HASHED.register(dict)
def hashed(vm: Machine, value: Object) -> list[tuple[Any, Value]]:
    return [(hkey, known_key(found)) for hkey, found in each_entry(vm, value)]


@models(dict, "__new__")
def new(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    return vm.new(cls.obj, {})


@rebuilds(dict)
def rebuild_dict(emit: Emitter, entity: Entity) -> None:
    if entity.payload.__class__ is OfInstance:
        emit.value(entity.payload.owner)
        emit.op("LOAD_ATTR", "__dict__")
        return
    check_keys(entity)
    push_items(emit, entity)
    if entity.pytype is not dict:
        emit.instance(entity, "update")


def check_keys(entity: Entity) -> None:
    """Refuse to materialize a dict whose keys are hashed by code of the user's, which would run twice."""
    if any(by_code(hkey) for hkey in entity.items or ()):
        raise Restart(entity.born - 1)


@replays(dict)
def replay_dict(emit: Emitter, entity: Entity) -> None:
    """Replace the contents, which are made first: they may be fetched from the old. What no path can say stays."""
    partly = entity.items.__class__ is Partly
    push_items(emit, entity)
    refill(emit, entity, None if partly else dict.clear, dict.update)

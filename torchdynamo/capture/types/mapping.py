"""dict and its subclasses, and an instance's `__dict__`; what is in them: items.py."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.types import identity
from torchdynamo.capture.types.counter_keys import holds_running_key
from torchdynamo.capture.types.items import (
    Partly,
    as_key,
    by_code,
    each_entry,
    each_item,
    entered,
    found_under,
    holds_plain,
    items_of,
    key_error,
    keys_of,
    known_key,
    lookup,
    push_items,
    remove,
    seen,
    source_of_tensor,
    sourceable,
    store,
    store_under,
    to_write,
    was_there,
    whole,
)
from torchdynamo.capture.types.weakrefs import Weakly
from torchdynamo.capture.vm import finalizers, model, namespaces
from torchdynamo.capture.vm.dict_aliases import OfInstance, writing_items
from torchdynamo.capture.vm.emitted_calls import refill
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.lookup import guarded_lookup, guarded_slot
from torchdynamo.capture.vm.model import Emitter, find_slot, iterates, models, rebuilds, replays
from torchdynamo.capture.vm.operators import same_or_equal
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.value import FALSE, NONE, TRUE, Known, Object, Value, boolean

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

NUMBERS = (int, float, bool, type(None))


@model.PAIRS.register(dict)
def pairs(vm: Machine, value: Value) -> list[tuple[Value, Value]]:
    """All items of a mapping, looked at; a dict's own, where its class does not say itself what it has."""
    if value.__class__ is Object and issubclass(value.pytype, dict) and not says_itself(vm, value.pytype):
        return [(key, item) for _, key, item in each_item(vm, value)]
    return asked(vm, value)


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
        if hkey.__class__ is Weakly or source_of_tensor(key) is not None:
            return boolean(lookup(vm, self, key) is not None)
        if identity.is_new_number(vm, key):
            return boolean(False)
        if not sourceable(as_key(key, hkey)):
            if key.pytype is tuple and identity.holds_id(vm, key):
                identity.told_apart(vm)
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
    return seen(vm, entity, entered(vm, self, key, hkey, default), key, hkey)


@models(dict, "pop")
def pop(vm: Machine, self: Object, key: Value, default: Value | None = None) -> Value:
    found = remove(vm, self, key)
    if found is not None:
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
    item = seen(vm, entity, found, key, hkey)
    del to_write(vm, self)[hkey]
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
    elif to_write(vm, self):
        finalizers.let_go(vm, *(item for _, item in entity.items.values()))
        entity.items.clear()
        entity.version += 1
    return NONE


def clears_plain_items(vm: Machine, entity: Entity) -> bool:
    """Clear a dict that was there, of which nobody has asked what is in it; return False where it holds other things
    than numbers and strings, whose end might be noticed.
    """
    if entity.source is None or entity.touched or entity.payload is not None or not holds_plain(entity.real):
        return False
    writing_items(vm, entity)
    vm.guard(entity.source, "PLAIN_ITEMS", None)
    vm.effects.items(entity)
    entity.items = {}
    entity.version += 1
    return True


@models(dict, "copy")
def copy(vm: Machine, self: Object) -> Object:
    made = vm.new(dict, {})
    take(vm, made, self)
    return made


@models(dict, "__ior__")
def in_place_or(vm: Machine, self: Object, other: Value) -> Value:
    update(vm, self, other)
    return self


@models(dict, "update")
def update(vm: Machine, self: Object, /, *others: Value, **kwargs: Value) -> Value:
    return filled(vm, self, "update", others, kwargs)


def too_many(cls: type, name: str, count: int) -> str:
    """Python's words, which are others for an OrderedDict."""
    if not issubclass(cls, collections.OrderedDict):
        return f"{name} expected at most 1 argument, got {count}"
    if name == "update":
        return f"update() takes at most 1 positional argument ({count} given)"
    return f"expected at most 1 arguments, got {count}"


def filled(vm: Machine, self: Object, name: str, others: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
    """What `update` and `__init__` do."""
    if len(others) > 1:
        raise vm.error(TypeError, too_many(self.pytype, name, len(others)))
    for other in others:
        if other.__class__ is Object and issubclass(other.pytype, dict):
            take(vm, self, other)
        elif other.__class__ is Object and find_slot(other.pytype, "keys")[0] != "missing":
            for key, item in vm.dict_items(other):
                put(vm, self, key, item)
        else:
            for at, pair in enumerate(vm.iterate(other)):
                put(vm, self, *two(vm, at, pair))
    for name, item in kwargs.items():
        put(vm, self, Known(name), item)
    return NONE


def two(vm: Machine, at: int, pair: Value) -> list[Value]:
    """A key and what is to be under it."""
    if pair.pytype in NUMBERS:
        raise vm.error(TypeError, f"cannot convert dictionary update sequence element #{at} to a sequence")
    items = list(vm.iterate(pair))
    if len(items) != 2:
        raise vm.error(ValueError, f"dictionary update sequence element #{at} has length {len(items)}; 2 is required")
    return items


def take(vm: Machine, self: Object, other: Object) -> None:
    """What a dict takes from another; keys are not hashed again, but where the other says itself what it has."""
    if says_itself(vm, other.pytype):
        for key, item in asked(vm, other):
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


def says_itself(vm: Machine, cls: type) -> bool:
    """Whether Python asks a dict of that class for `keys()` and each item, instead of reading its table."""
    ordered = issubclass(cls, collections.OrderedDict)
    names = ("__iter__", "keys", "__getitem__") if ordered else ("__iter__",)
    return cls is not dict and any(guarded_slot(vm, cls, name)[0] == "python" for name in names)


def asked(vm: Machine, other: Value) -> list[tuple[Value, Value]]:
    """The items of a mapping, by its own methods."""
    keys = list(vm.iterate(vm.call_method(other, "keys")))
    return [(key, vm.getitem(other, key)) for key in keys]


def put(vm: Machine, self: Object, key: Value, item: Value) -> None:
    """How `update` writes: an OrderedDict goes through the class's `__setitem__`, a dict past it."""
    if issubclass(self.pytype, collections.OrderedDict):
        vm.setitem(self, key, item)
    else:
        store(vm, self, key, item)


@models(dict, "__or__")
def union(vm: Machine, self: Value, other: Value) -> Value:
    """A dict, whatever both are; those of collections give their class."""
    if not (issubclass(self.pytype, dict) and issubclass(other.pytype, dict)):
        return Known(NotImplemented)
    box = vm.as_object(self)
    made = vm.as_object(vm.call_method(box, "copy") if kept_class(box.pytype) else copy(vm, box))
    update(vm, made, other)
    return made


def kept_class(cls: type) -> bool:
    return issubclass(cls, (collections.OrderedDict, collections.defaultdict))


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
        item = seen(vm, vm.entity(self), found, key, hkey)
        if not same_or_equal(vm, seen(vm, vm.entity(other), match, key, hkey), item):
            return FALSE
    return TRUE


@models(dict, "fromkeys")
def fromkeys(vm: Machine, cls: Value, keys: Value, value: Value = NONE) -> Value:
    """Into what calling the class gives, as items are stored in it; a dict takes keys of dicts and sets as hashed."""
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


@model.HASHED.register(dict)
def hashed(vm: Machine, value: Object) -> list[tuple[Any, Value]]:
    return [(hkey, known_key(found)) for hkey, found in each_entry(vm, value)]


@models(dict, "__new__")
def new(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    return vm.new(cls.obj, {})


@models(dict, "__init__")
def init(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    return filled(vm, self, "dict", args, kwargs)


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
    """Making the dict again hashes its keys: where that runs code of the user's, it would run twice."""
    if any(by_code(hkey) for hkey in entity.items or ()):
        raise Restart(entity.born - 1)


@replays(dict)
def replay_dict(emit: Emitter, entity: Entity) -> None:
    """The new contents are made first: they may be fetched from the old. What cannot be fetched stays where it is."""
    partly = entity.items.__class__ is Partly
    push_items(emit, entity)
    refill(emit, entity, None if partly else dict.clear, dict.update)

"""The items of dicts: those there at entry and those put in since, of an instance's `__dict__` too."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from torchdynamo import _native
from torchdynamo.capture.types import counter_keys, identity
from torchdynamo.capture.types.checked_iterators import CheckedIterator, OrderedDictIterator
from torchdynamo.capture.types.keys import (
    as_key,
    by_code,
    entry_key,
    known_key,
    ordered_keys,
    source_of_key,
    sourceable,
)
from torchdynamo.capture.types.weakrefs import Weakly
from torchdynamo.capture.vm import finalizers, namespaces
from torchdynamo.capture.vm.dict_aliases import OfInstance, note_items_write
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.keys import Keyed
from torchdynamo.capture.vm.lookup import class_lookup, guarded_lookup
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter
from torchdynamo.capture.vm.wrap import class_source, item_source
from torchdynamo.core.naming import is_mortal
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import ABSENT, NONE, Known, Lazy, Object, Value

Items = dict[Any, list[Any]]  # the key (None if it has no value here) and what is under it
CHANGED = "dictionary changed size during iteration"


class HashedItem(NamedTuple):
    """An item of a dict with what its key has been hashed to, so that another dict need not hash it again."""

    hkey: Any
    key: Value
    value: Value


class Partly(dict[Any, list[Any]]):
    """The items of a dict that was there, some of whose keys no path can say, where the frame puts in others and does
    nothing else to it: an optimizer keeps a state for each tensor.
    """

    def __init__(self, items: Items) -> None:
        super().__init__(items)
        self.added: set[Any] = set()


def items_of(vm: Machine, value: Object) -> Items:
    """Return the items as they are now, in order; values that nothing has read yet are Lazy."""
    entity = vm.entity(value)
    if entity.payload.__class__ is OfInstance:
        return instance_items(vm, entity.payload.owner)
    if entity.items is None:
        entity.items = {}
        if entity.real is not MISSING:
            assert entity.source is not None
            held = {id(key): item for key, item in dict.items(entity.real)}  # no key is hashed: it may be the user's
            for key in ordered_keys(entity.real):
                item = held[id(key)]
                hkey, known = entry_key(vm, key)
                opaque = ABSENT if known is None else Lazy(type(item), item_source(entity.source, key))
                entity.items[hkey] = [known, opaque]
    items: Items = entity.items
    return items


def whole(vm: Machine, value: Object) -> Items:
    """Return the items, for an operation that depends on which keys there are and in which order."""
    entity = vm.entity(value)
    items = items_of(vm, value)
    if entity.real is not MISSING and entity.payload is None and not was_cleared(vm, entity):
        assert entity.source is not None
        if dict.__len__(entity.real) > counter_keys.MANY:
            raise Break("too long to follow", name="dict")
        keys = ordered_keys(entity.real)
        if not all(map(sourceable, keys)):
            raise Break("unsupported key", type="object")
        vm.guard(entity.source, "DICT_KEYS", keys)  # hashes them
    return items


def was_cleared(vm: Machine, entity: Entity) -> bool:
    """Return whether the frame has cleared a dict without asking what was in it: all that is in it now is its own."""
    return entity.touched and (entity.source, "PLAIN_ITEMS", type(None), None) in vm.guards


def instance_items(vm: Machine, owner: Object) -> Items:
    """Return all attributes of an instance, as the items of its `__dict__`."""
    entity = vm.entity(owner)
    names: dict[str, None] = {}
    if entity.real is not MISSING:
        assert entity.source is not None
        own = namespaces.own_dict(entity) or {}
        vm.guard(namespaces.dict_source(entity), "DICT_KEYS", tuple(own))
        again = vm.effects.set_again(entity)
        names = dict.fromkeys(name for name in own if name not in again)
    if any(type(name) is not str for name in names):
        raise Break("unsupported key", type="object")
    names.update(dict.fromkeys(name for name in entity.attrs if not kept_elsewhere(owner.pytype, name)))
    found = {name: namespaces.read_instance(vm, entity, name) for name in names}
    return {name: [Known(name), value] for name, value in found.items() if value is not None}


def kept_elsewhere(cls: type, name: str) -> bool:
    """Return whether an attribute is not in the `__dict__`: a slot's is in the object itself, as is what C keeps."""
    return type(class_lookup(cls, name)) in (types.MemberDescriptorType, types.GetSetDescriptorType)


def lookup(vm: Machine, value: Object, key: Value) -> Value | None:
    """Return the item under a key; None if there is none."""
    return found_under(vm, value, key, vm.hkey(key))


def found_under(vm: Machine, value: Object, key: Value, hkey: Any) -> Value | None:
    """Return the item under a key that has been hashed, None if there is none.

    Hashes nothing again: that may run code.
    """
    entity = vm.entity(value)
    if entity.payload.__class__ is OfInstance:
        if type(hkey) is str and not kept_elsewhere(entity.payload.owner.pytype, hkey):
            return namespaces.read_instance(vm, vm.entity(entity.payload.owner), hkey)
        if type(hkey) is not str and was_there(vm.entity(entity.payload.owner).attrs, hkey):
            raise Break("unsupported key", type=type(hkey).__name__)  # it equals a name
        guard_missing(vm, value, key, hkey)  # no attribute: only who writes to the dict itself puts it there
        return None
    found = items_of(vm, value).get(hkey)
    if found is None:
        guard_missing(vm, value, key, hkey)
        return None
    return looked_at(vm, entity, found, key, hkey)


def guard_missing(vm: Machine, value: Object, key: Value, hkey: Any) -> None:
    """Guard that a key is not in a dict that existed, unless the frame has taken it away."""
    entity = vm.entity(value)
    if entity.source is None:
        return
    if hkey.__class__ is not Keyed and was_there(entity.real, hkey):
        if entity.touched and entity.items.__class__ is not Partly:
            return
        raise Break("unsupported key", type=type(hkey).__name__)  # it is there as an equal key that no path can say
    where = source_of_key(vm, key)
    if where is None and issubclass(type(hkey), type):
        if id(hkey) in vm.made_classes:
            return
        where = class_source(hkey) if is_mortal(hkey) else None
    if where is not None:
        vm.guard(entity.source, "NOT_KEYED", where)
    elif hkey.__class__ is Weakly:
        for other, _ in list(whole(vm, value).values()):
            vm.hkey(other or NONE)  # looked at, and so told apart
    elif not sourceable(as_key(key, hkey)):
        if identity.holds_id(vm, key):
            identity.retry_with_ids_guarded(vm)
        raise Break("unsupported key", type=key.pytype.__name__)
    else:
        vm.guard(entity.source, "NO_KEY", hkey)


def was_there(real: Any, hkey: Any) -> bool:
    """Return whether the key was there at entry. Ends the graph where only a key's own code could tell."""
    found = _native.has_key(real, hkey)
    if found is None:
        raise Break("unsupported key", type=type(hkey).__name__)
    return found


def looked_at(vm: Machine, entity: Entity, found: list[Any], key: Value, hkey: Any) -> Value:
    """Return the item of a key and value pair, which is looked at first."""
    if hkey.__class__ is Weakly and entity.source is not None and found[0] is not None:
        vm.hkey(found[0])  # looked at: it refers to that object
    if found[1] is ABSENT:
        where = source_of_key(vm, key)
        if where is None or entity.source is None:
            raise Break("unsupported key", type="object")
        source = Source("keyed", entity.source, where)
        found[:] = [key, vm.wrap(source.load(vm.roots), source)]
    elif found[1].__class__ is Lazy:
        found[1] = vm.look(found[1])
    item: Value = found[1]
    return item


def items_to_write(vm: Machine, value: Object) -> Items:
    """Return the items, to be changed. What there was at entry is guarded as a whole."""
    entity = vm.entity(value)
    if entity.items.__class__ is Partly:
        raise Break("unsupported key", type="object")
    if entity.real is MISSING or entity.touched:
        items = items_of(vm, value)
    else:
        note_items_write(vm, entity)
        items = whole(vm, value)
    vm.effects.items(entity)
    return items


PLAIN = frozenset({str, int, float, bool, type(None)})


def holds_plain(dct: Any) -> bool:
    """Return whether an object is a dict in which there are numbers, strings and None only, keys and values."""
    return type(dct) is dict and PLAIN.issuperset(map(type, (*dct, *dct.values())))


def store(vm: Machine, value: Object, key: Value, item: Value) -> None:
    store_under(vm, value, key, vm.hkey(key), item)


def store_under(vm: Machine, value: Object, key: Value, hkey: Any, item: Value) -> None:
    """Put an item into a dict by one look into it, as Python takes: a key that is there stays."""
    entity = vm.entity(value)
    if entity.payload.__class__ is OfInstance:
        namespaces.write_instance(vm, vm.entity(entity.payload.owner), of_instance_key(vm, entity, hkey), item)
        return
    found = enter_item(vm, value, key, hkey, item)
    if found[1] is not item:
        finalizers.let_go(vm, found[1])
    found[1] = item


def enter_item(vm: Machine, value: Object, key: Value, hkey: Any, item: Value) -> list[Any]:
    """Return the entry of a key, which is put in with the item where it is not there."""
    entity = vm.entity(value)
    if not entity.fresh and by_code(hkey):
        raise Break("unsupported key", type=key.pytype.__name__)  # putting it in for real would run its code again
    pair = [key, item]
    found = items_to_enter(vm, value, key, hkey).setdefault(hkey, pair)
    if found is pair:
        entity.version += 1
    return found


def items_to_enter(vm: Machine, value: Object, key: Value, hkey: Any) -> Items:
    """Return the items, for one to be put in."""
    entity = vm.entity(value)
    if entity.items.__class__ is not Partly:
        told = entity.real is MISSING or entity.touched or all(map(sourceable, dict.keys(entity.real)))
        if told or issubclass(entity.pytype, collections.OrderedDict):
            return items_to_write(vm, value)
        note_items_write(vm, entity)
        entity.items = Partly(items_of(vm, value))
    vm.effects.items(entity)
    if hkey not in entity.items:
        guard_missing(vm, value, key, hkey)
        entity.items.added.add(hkey)
    elif hkey not in entity.items.added:
        raise Break("unsupported key", type="object")  # what was there is written over
    items: Items = entity.items
    return items


def of_instance_key(vm: Machine, entity: Entity, hkey: Any) -> str:
    """Return a key as the name of an attribute.

    Ends the graph for other keys of a `__dict__`, which no attribute has.
    """
    owner = entity.payload_as(OfInstance).owner
    if type(hkey) is not str or hasattr(type(guarded_lookup(vm, owner.pytype, hkey)), "__set__"):
        raise Break("unsupported key", type=type(hkey).__name__)
    return hkey


def remove(vm: Machine, value: Object, key: Value) -> Value | None:
    """Take the item under a key away, and give it; None if there is none."""
    entity, hkey = vm.entity(value), vm.hkey(key)
    if entity.payload.__class__ is OfInstance:
        held = found_under(vm, value, key, hkey)
        if held is not None:
            namespaces.write_instance(vm, vm.entity(entity.payload.owner), of_instance_key(vm, entity, hkey), ABSENT)
        return held
    if entity.real is not MISSING and not entity.touched and found_under(vm, value, key, hkey) is None:
        return None
    found = items_to_write(vm, value).pop(hkey, None)
    if found is None:
        return None
    entity.version += 1
    return looked_at(vm, entity, found, key, hkey)


def each_item(vm: Machine, self: Object) -> list[HashedItem]:
    """Return all items as they are now, each looked at."""
    entity = vm.entity(self)
    return [
        HashedItem(hkey, known_key(found), looked_at(vm, entity, found, known_key(found), hkey))
        for hkey, found in each_entry(vm, self)
    ]


def each_entry(vm: Machine, self: Object) -> list[tuple[Any, list[Any]]]:
    return list(whole(vm, self).items())


def keys_of(vm: Machine, value: Object) -> Iterator[Value]:
    """Return an iterator over the keys in order; a change of size meanwhile is an error, as in Python."""
    return turns(vm, value, lambda key, item: key)


def turns(
    vm: Machine, value: Object, part: Callable[[Value, Value], Value], backwards: bool = False
) -> CheckedIterator:
    """Return an iterator over what `part` makes of each item."""
    entity = vm.entity(value)
    order: Sequence[Any]
    step: Callable[[Any], Value]
    if counter_keys.found_by_position(vm, entity):
        order, step = counter_keys.each_by_position(vm, entity, part)
    else:
        order, step = list(whole(vm, value).items()), each_by_key(vm, value, part)
    order = order[:: -1 if backwards else 1]

    def size() -> int:
        items = items_of(vm, value)
        if entity.payload.__class__ is OfInstance and len(items) == len(order) and items.keys() != dict(order).keys():
            raise Break("unknown iterator", type="dict that changes")
        return len(items)

    if issubclass(value.pytype, collections.OrderedDict):
        return OrderedDictIterator(vm, value, order, step, size, "OrderedDict mutated during iteration")
    return CheckedIterator(vm, value, order, step, size, CHANGED)


def each_by_key(
    vm: Machine, value: Object, part: Callable[[Value, Value], Value]
) -> Callable[[tuple[Any, list[Any]]], Value]:
    """Return what gives `part` of an item that is known by its key."""
    entity = vm.entity(value)

    def step(entry: tuple[Any, list[Any]]) -> Value:
        hkey, found = entry
        key = known_key(found)
        if entity.payload.__class__ is OfInstance:
            return part(key, found_under(vm, value, key, hkey) or NONE)
        return part(key, looked_at(vm, entity, found, key, hkey))

    return step


def push_items(emit: Emitter, entity: Entity) -> None:
    """Push a new dict of the items; of a dict whose keys are not all known, of those that the frame put in."""
    items: Items = entity.items or {}
    pushed = [items[hkey] for hkey in items if items.__class__ is not Partly or hkey in items.added]
    for pair in pushed:
        emit.value(pair[0])
        emit.value(pair[1])
    emit.op("BUILD", ("map", len(pushed)))

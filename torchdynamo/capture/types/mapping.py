"""dict and its subclasses, their views, and an instance's `__dict__`."""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from torchdynamo.capture import attributes
from torchdynamo.capture.call import apply
from torchdynamo.capture.heap import MISSING, Entity
from torchdynamo.capture.lookup import class_lookup, guarded_lookup, guarded_slot, hashed_by_code, instance_dict
from torchdynamo.capture.machine import Keyed, Ref
from torchdynamo.capture.model import MODELS, Emitter, find_slot, iterates, models, rebuilds, replays
from torchdynamo.capture.operators import same_or_equal
from torchdynamo.capture.signals import Break, Raised, Restart
from torchdynamo.capture.source import Pinned, Source
from torchdynamo.capture.spaces import OfInstance, writing_items
from torchdynamo.capture.types import identity
from torchdynamo.capture.types.watched import Ordered, Watched
from torchdynamo.capture.types.weak import Weakly, is_reference, real_key
from torchdynamo.capture.value import ABSENT, FALSE, NONE, TRUE, Graphed, Known, Object, Opaque, Symbol, Value, boolean
from torchdynamo.capture.wrap import CONSTANTS, told_apart

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine

Items = dict[Any, list[Any]]  # the key (None if it has no value here) and what is under it
BY_IDENTITY = (types.FunctionType, types.ModuleType, types.BuiltinFunctionType, enum.Enum)


def items_of(vm: Machine, value: Object) -> Items:
    """The items as they are now, in order; values nothing has read yet are Opaque."""
    entity = vm.entity(value)
    if entity.note.__class__ is OfInstance:
        return instance_items(vm, entity.note.owner)
    if entity.items is None:
        entity.items = {}
        if entity.real is not MISSING:
            assert entity.source is not None
            held = {id(key): item for key, item in dict.items(entity.real)}  # no key is hashed: it may be the user's
            for key in ordered_keys(entity.real):
                item = held[id(key)]
                hkey, known = entry_key(vm, key)
                opaque = ABSENT if known is None else Opaque(type(item), Source("key", entity.source, key))
                entity.items[hkey] = [known, opaque]
    items: Items = entity.items
    return items


def entry_key(vm: Machine, key: Any) -> tuple[Any, Value | None]:
    """What stands for a key that was there at entry, and the key as a value, if it may stand in a path."""
    if is_reference(key):
        hkey = real_key(key)
        if hkey is not None:
            return hkey, vm.heap.by_id.get(id(key)) or vm.heap.adopt(key, Source("pinned", None, Pinned(key)))
    elif sourceable(key):
        if identity.may_be_id(key):
            identity.seen_address(vm)
        return key, Known(key)
    return Ref(id(key)), None


def ordered_keys(real: Any) -> tuple[Any, ...]:
    """The keys in order: an OrderedDict keeps its own."""
    if not isinstance(real, collections.OrderedDict):
        return tuple(dict.keys(real))
    try:
        keys = tuple(collections.OrderedDict.keys(real))
    except KeyError:
        keys = ()
    if len(keys) != dict.__len__(real):  # dict's own methods have changed it past its order
        raise Break("unsupported type", type=type(real).__name__)
    return keys


def sourceable(key: Any) -> bool:
    """Keys that may stand in a path: constants, and what is its own identity."""
    if type(key) is tuple:
        return all(sourceable(item) for item in key)
    if issubclass(type(key), type):
        return told_apart(key)
    return type(key) in CONSTANTS or issubclass(type(key), BY_IDENTITY) or is_reference(key)


def as_key(key: Value, hkey: Any) -> Any:
    """The constant that a key is: numbers have been settled when they were hashed."""
    return hkey if key.__class__ is Symbol else getattr(key, "obj", ABSENT)


NUMBERS = (int, float, bool, type(None))
MANY = 10_000  # keys that are still compared with at each call


def whole(vm: Machine, value: Object) -> Items:
    """The items, for an operation that depends on which keys there are and in which order."""
    entity = vm.entity(value)
    items = items_of(vm, value)
    if entity.real is not MISSING and entity.note is None:
        assert entity.source is not None
        if len(entity.real) > MANY:
            raise Break("too long to follow", name="dict")
        keys = ordered_keys(entity.real)
        if not all(map(sourceable, keys)):
            raise Break("unsupported key", type="object")
        vm.guard(entity.source, "DICT_KEYS", keys)  # hashes them
    return items


def instance_items(vm: Machine, owner: Object) -> Items:
    """All attributes of an instance."""
    entity = vm.entity(owner)
    names: dict[str, None] = {}
    if entity.real is not MISSING:
        assert entity.source is not None
        own = instance_dict(entity.real) or {}
        vm.guard(Source("dict", entity.source), "DICT_KEYS", tuple(own))
        again = vm.set_again.get(entity.ref, ())
        names = dict.fromkeys(name for name in own if name not in again)
    if any(type(name) is not str for name in names):
        raise Break("unsupported key", type="object")
    names.update(dict.fromkeys(name for name in entity.attrs if not kept_elsewhere(owner.pytype, name)))
    found = {name: attributes.read_instance(vm, entity, name) for name in names}
    return {name: [Known(name), value] for name, value in found.items() if value is not None}


def kept_elsewhere(cls: type, name: str) -> bool:
    """A slot, or what C keeps in the object itself, is not in its `__dict__`."""
    return type(class_lookup(cls, name)) in (types.MemberDescriptorType, types.GetSetDescriptorType)


def lookup(vm: Machine, value: Object, key: Value) -> Value | None:
    """The item under a key, or None."""
    return found_under(vm, value, key, vm.hkey(key))


def found_under(vm: Machine, value: Object, key: Value, hkey: Any) -> Value | None:
    """The same for a key that has been hashed: the user's code is asked as often as Python asks it."""
    entity = vm.entity(value)
    if entity.note.__class__ is OfInstance:
        if type(hkey) is not str or kept_elsewhere(entity.note.owner.pytype, hkey):
            return None
        return attributes.read_instance(vm, vm.entity(entity.note.owner), hkey)
    found = items_of(vm, value).get(hkey)
    if found is None:
        guard_missing(vm, value, key, hkey)
        return None
    return seen(vm, entity, found, key, hkey)


def guard_missing(vm: Machine, value: Object, key: Value, hkey: Any) -> None:
    """The key is not there. If the frame has not taken it away, it was not there at entry."""
    entity = vm.entity(value)
    if entity.source is None or (hkey.__class__ is not Keyed and was_there(entity.real, hkey)):
        return
    where = source_of_tensor(key)
    if where is not None:
        vm.guard(entity.source, "NOT_KEYED", where)
    elif hkey.__class__ is Weakly:
        for other, _ in list(whole(vm, value).values()):
            vm.hkey(other or NONE)  # looked at, and so told apart
    elif not sourceable(as_key(key, hkey)):
        raise Break("unsupported key", type=key.pytype.__name__)
    else:
        vm.guard(entity.source, "NO_KEY", hkey)


def was_there(real: Any, hkey: Any) -> bool:
    """Whether the key was there at entry, where no code of the user's says what its keys equal."""
    for cls in {id(cls): cls for cls in map(type, dict.keys(real))}.values():
        if type(class_lookup(cls, "__eq__")) is types.FunctionType:
            raise Break("unsupported key", type=cls.__name__)
    return dict.__contains__(real, hkey)


def seen(vm: Machine, entity: Entity, found: list[Any], key: Value, hkey: Any) -> Value:
    """What is under a key, looked at."""
    if hkey.__class__ is Weakly and entity.source is not None and found[0] is not None:
        vm.hkey(found[0])  # looked at: it refers to that object
    if found[1] is ABSENT:
        where = source_of_tensor(key)
        if where is None or entity.source is None:
            raise Break("unsupported key", type="object")
        source = Source("keyed", entity.source, where)
        found[:] = [key, vm.wrap(source.load(vm.roots), source)]
    elif found[1].__class__ is Opaque:
        found[1] = vm.look(found[1])
    item: Value = found[1]
    return item


def source_of_tensor(key: Value) -> Source | None:
    """Where a tensor that is a key was at entry: tensors as keys are known by identity, and by nothing else."""
    return key.source if isinstance(key, Graphed) else None


def to_write(vm: Machine, value: Object) -> Items:
    """The items, to be changed: what there was at entry is known as a whole then."""
    entity = vm.entity(value)
    if entity.real is MISSING or entity.touched:
        items = items_of(vm, value)
    else:
        writing_items(vm, entity)
        items = whole(vm, value)
    entity.touched = True
    return items


def store(vm: Machine, value: Object, key: Value, item: Value) -> None:
    store_under(vm, value, key, vm.hkey(key), item)


def store_under(vm: Machine, value: Object, key: Value, hkey: Any, item: Value) -> None:
    """One look into the dict, as Python takes: a key that is there stays, and gets the new item."""
    entity = vm.entity(value)
    if entity.note.__class__ is OfInstance:
        attributes.write_instance(vm, vm.entity(entity.note.owner), of_instance_key(vm, entity, hkey), item)
        return
    found = entered(vm, value, key, hkey, item)
    found[1] = item


def entered(vm: Machine, value: Object, key: Value, hkey: Any, item: Value) -> list[Any]:
    """What is under the key, which is put in with the item where it is not there."""
    entity = vm.entity(value)
    if not entity.fresh and by_code(hkey):
        raise Break("unsupported key", type=key.pytype.__name__)  # putting it in for real would run its code again
    pair = [key, item]
    found = to_write(vm, value).setdefault(hkey, pair)
    if found is pair:
        entity.version += 1
    return found


def by_code(hkey: Any) -> bool:
    """Whether hashing the key runs code of the user's, which may show."""
    if hkey.__class__ is tuple:
        return any(by_code(part) for part in hkey)
    return hkey.__class__ is Keyed and hashed_by_code(hkey.value.pytype)


def of_instance_key(vm: Machine, entity: Entity, hkey: Any) -> str:
    """The name of an attribute; an instance's `__dict__` may hold other keys, which no attribute has."""
    if type(hkey) is not str or hasattr(type(guarded_lookup(vm, entity.note.owner.pytype, hkey)), "__set__"):
        raise Break("unsupported key", type=type(hkey).__name__)
    return hkey


def remove(vm: Machine, value: Object, key: Value) -> Value | None:
    """Take the item under a key away, and give it; None if there is none."""
    entity, hkey = vm.entity(value), vm.hkey(key)
    if entity.note.__class__ is OfInstance:
        held = found_under(vm, value, key, hkey)
        if held is not None:
            attributes.write_instance(vm, vm.entity(entity.note.owner), of_instance_key(vm, entity, hkey), ABSENT)
        return held
    if entity.real is not MISSING and not entity.touched and found_under(vm, value, key, hkey) is None:
        return None
    found = to_write(vm, value).pop(hkey, None)
    if found is None:
        return None
    entity.version += 1
    return seen(vm, entity, found, key, hkey)


class Item(NamedTuple):
    """An item as another dict would take it: the key is not hashed again."""

    hkey: Any
    key: Value
    value: Value


@models(dict, "<items>")
def pairs(vm: Machine, value: Value) -> list[tuple[Value, Value]]:
    """All items of a mapping, looked at; a dict's own, where its class does not say itself what it has."""
    if value.__class__ is Object and issubclass(value.pytype, dict) and not says_itself(vm, value.pytype):
        return [(key, item) for _, key, item in each_item(vm, value)]
    return asked(vm, value)


def each_item(vm: Machine, self: Object) -> list[Item]:
    """All items as they are now, looked at."""
    entity = vm.entity(self)
    return [
        Item(hkey, known_key(found), seen(vm, entity, found, known_key(found), hkey))
        for hkey, found in each_entry(vm, self)
    ]


def each_entry(vm: Machine, self: Object) -> list[tuple[Any, list[Any]]]:
    return list(whole(vm, self).items())


def known_key(found: list[Any]) -> Value:
    key: Value | None = found[0]
    if key is None:
        raise Break("unsupported key", type="object")
    return key


def keys_of(vm: Machine, value: Object) -> Iterator[Value]:
    """Keys in order; a change of size meanwhile is an error, as in Python."""
    return turns(vm, value, lambda key, item: key)


def turns(vm: Machine, value: Object, part: Callable[[Value, Value], Value], backwards: bool = False) -> Watched:
    """An iterator over what `part` makes of each item."""
    entity = vm.entity(value)
    order = list(whole(vm, value).items())[:: -1 if backwards else 1]

    def step(entry: tuple[Any, list[Any]]) -> Value:
        hkey, found = entry
        key = known_key(found)
        if entity.note.__class__ is OfInstance:
            return part(key, found_under(vm, value, key, hkey) or NONE)
        return part(key, seen(vm, entity, found, key, hkey))

    def size() -> int:
        items = items_of(vm, value)
        if entity.note.__class__ is OfInstance and len(items) == len(order) and items.keys() != dict(order).keys():
            raise Break("unknown iterator", type="dict that changes")
        return len(items)

    if issubclass(value.pytype, collections.OrderedDict):
        return Ordered(vm, value, order, step, size, "OrderedDict mutated during iteration")
    return Watched(vm, value, order, step, size, CHANGED)


CHANGED = "dictionary changed size during iteration"


@models(dict, "<of instance>")
def of_instance(vm: Machine, owner: Object) -> Value:
    entity = vm.entity(owner)
    known = entity.loaded.get("__dict__")
    if known is None:
        own = attributes.own_attributes(vm, entity)
        there = own is not None and entity.source is not None
        made = vm.wrap(own, Source("dict", entity.source)) if there else vm.new(dict, note=OfInstance(owner))
        known = entity.loaded["__dict__"] = made
    return known


@iterates(dict)
def iterate(vm: Machine, value: Object) -> Iterator[Value]:
    return keys_of(vm, value)


def key_error(vm: Machine, key: Value) -> Raised:
    """KeyError, with the key itself."""
    return Raised(MODELS[BaseException, "__new__"](vm, Known(KeyError), key))


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


@models(collections.defaultdict, "__missing__")
def missing(vm: Machine, self: Object, key: Value) -> Value:
    factory = vm.getattr(self, "default_factory")
    if factory.__class__ is Known and factory.obj is None:
        raise key_error(vm, key)
    made = vm.call(factory, [], {})
    vm.setitem(self, key, made)
    return made


@models(collections.defaultdict, "__init__")
def defaultdict_init(vm: Machine, self: Object, factory: Value = NONE, /, *args: Value, **kwargs: Value) -> Value:
    if factory.__class__ is Known and factory.obj is not None and not callable(factory.obj):
        raise vm.error(TypeError, "first argument must be callable or None")
    if factory.__class__ is Object and class_lookup(factory.pytype, "__call__") is MISSING:
        raise vm.error(TypeError, "first argument must be callable or None")
    vm.entity(self).attrs["default_factory"] = factory
    return init(vm, self, *args, **kwargs)


@models(dict, "__setitem__")
def setitem(vm: Machine, self: Object, key: Value, item: Value) -> Value:
    store(vm, self, key, item)
    return NONE


@models(dict, "__delitem__")
def delitem(vm: Machine, self: Object, key: Value) -> Value:
    if remove(vm, self, key) is None:
        raise key_error(vm, key)
    return NONE


@models(dict, "__contains__", "has_key")
def contains(vm: Machine, self: Object, key: Value) -> Value:
    entity = vm.entity(self)
    hkey = vm.hkey(key)
    if entity.real is not MISSING and entity.note is None and not entity.touched and entity.source is not None:
        if hkey.__class__ is Weakly:
            return boolean(lookup(vm, self, key) is not None)
        if not sourceable(as_key(key, hkey)):
            raise Break("unsupported key", type=key.pytype.__name__)
        present = was_there(entity.real, hkey)
        vm.guard(entity.source, "HAS_KEY" if present else "NO_KEY", hkey)
        return boolean(present)
    if entity.note.__class__ is OfInstance:
        return boolean(lookup(vm, self, key) is not None)
    return boolean(hkey in items_of(vm, self))


@models(dict, "__len__")
def length(vm: Machine, self: Object) -> Value:
    entity = vm.entity(self)
    if entity.real is not MISSING and not entity.touched and entity.note is None:
        assert entity.source is not None
        vm.guard(entity.source, "LENGTH", dict.__len__(entity.real))
        return Known(dict.__len__(entity.real))
    return Known(len(items_of(vm, self)))


@models(dict, "get")
def get(vm: Machine, self: Object, key: Value, default: Value = NONE) -> Value:
    found = lookup(vm, self, key)
    return default if found is None else found


@models(dict, "setdefault")
def setdefault(vm: Machine, self: Object, key: Value, default: Value = NONE) -> Value:
    entity, hkey = vm.entity(self), vm.hkey(key)
    if entity.note.__class__ is OfInstance or (entity.real is not MISSING and not entity.touched):
        held = found_under(vm, self, key, hkey)
        if held is None:
            store_under(vm, self, key, hkey, default)
        return default if held is None else held
    return seen(vm, entity, entered(vm, self, key, hkey, default), key, hkey)


@models(dict, "pop")
def pop(vm: Machine, self: Object, key: Value, *default: Value) -> Value:
    found = remove(vm, self, key)
    if found is not None:
        return found
    if not default:
        raise key_error(vm, key)
    return default[0]


@models(dict, "popitem")
def popitem(vm: Machine, self: Object, last: Value = TRUE) -> Value:
    entity = vm.entity(self)
    if entity.note.__class__ is OfInstance:
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


@models(collections.OrderedDict, "move_to_end")
def move_to_end(vm: Machine, self: Object, key: Value, last: Value = TRUE) -> Value:
    entity, hkey = vm.entity(self), vm.hkey(key)
    found = to_write(vm, self).pop(hkey, None)
    if found is None:
        raise key_error(vm, key)
    entity.version += 1
    moved = {hkey: found}
    entity.items = {**entity.items, **moved} if vm.truth(last) else {**moved, **entity.items}
    return NONE


@models(collections.OrderedDict, "__eq__")
def equal_in_order(vm: Machine, self: Object, other: Value) -> Value:
    """Order counts between two that keep it."""
    same = equal(vm, self, other)
    if same.obj is not True or not issubclass(other.pytype, collections.OrderedDict):  # type: ignore[union-attr]
        return same
    return boolean(list(items_of(vm, self)) == list(items_of(vm, other)))  # type: ignore[arg-type]


@models(dict, "__ne__")
def different(vm: Machine, self: Object, other: Value) -> Value:
    same = vm.special(self, "__eq__", other)
    return same if same.obj is NotImplemented else boolean(not same.obj)  # type: ignore[union-attr]


@models(dict, "clear")
def clear(vm: Machine, self: Object) -> Value:
    entity = vm.entity(self)
    if entity.note.__class__ is OfInstance:
        for key in list(keys_of(vm, self)):
            remove(vm, self, key)
    elif to_write(vm, self):
        entity.items.clear()
        entity.version += 1
    return NONE


@models(dict, "copy")
def copy(vm: Machine, self: Object) -> Object:
    made = vm.new(dict, {})
    take(vm, made, self)
    return made


@models(collections.defaultdict, "copy", "__copy__")
def copy_default(vm: Machine, self: Object) -> Value:
    return vm.call(Known(self.pytype), [vm.getattr(self, "default_factory"), self], {})


@models(collections.OrderedDict, "copy", "__copy__")
def copy_ordered(vm: Machine, self: Object) -> Value:
    """Of the class; a subclass is asked for each item."""
    made = vm.as_object(vm.call(Known(self.pytype), [], {}))
    exact = self.pytype is collections.OrderedDict
    for hkey, key, item in each_item(vm, self):
        if exact:
            store_under(vm, made, key, hkey, item)
        else:
            vm.setitem(made, key, vm.getitem(self, key))
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
        hashed = MODELS.get((keys.pytype, "<hashed>"))
        if hashed is not None:
            for hkey, key in hashed(vm, keys):
                store_under(vm, made, key, hkey, value)
            return made
    for key in vm.iterate(keys):
        vm.setitem(made, key, value)
    return made


@models(dict, "<hashed>")
def hashed(vm: Machine, value: Object) -> list[tuple[Any, Value]]:
    return [(hkey, known_key(found)) for hkey, found in each_entry(vm, value)]


@models(dict, "__new__")
def new(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    return vm.new(cls.obj, {})


@models(dict, "__init__")
def init(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    return filled(vm, self, "dict", args, kwargs)


def past_order(name: str) -> None:
    """What dict's own method leaves of an OrderedDict is in no order that Python keeps."""
    row = MODELS[dict, name]

    def of_dict(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
        if issubclass(self.pytype, collections.OrderedDict):
            raise Break("unsupported method", name=name, type="dict")
        return apply(vm, row, getattr(dict, name), [self, *args], kwargs)

    models(collections.OrderedDict, name)(row)
    models(dict, name)(of_dict)


for _name in ("__setitem__", "__delitem__", "pop", "popitem", "setdefault", "clear", "update"):
    past_order(_name)


@rebuilds(dict)
def rebuild_dict(emit: Emitter, entity: Entity) -> None:
    if entity.note.__class__ is OfInstance:
        emit.value(entity.note.owner)
        emit.op("LOAD_ATTR", "__dict__")
        return
    if any(by_code(hkey) for hkey in entity.items or ()):
        raise Restart(entity.born - 1)  # making it again would run that code again
    if entity.pytype is collections.defaultdict:
        emit.function(collections.defaultdict)
        emit.value(entity.attrs["default_factory"])
        push_items(emit, entity)
        emit.op("CALL", (2, ()))
        return
    if issubclass(entity.pytype, collections.OrderedDict):
        emit.function(make_ordered)
        emit.const(entity.pytype)
        push_items(emit, entity)
        emit.op("CALL", (2, ()))
        return
    push_items(emit, entity)
    if entity.pytype is not dict:
        emit.instance(entity, "update")


def make_ordered(cls: type, items: dict[Any, Any]) -> Any:
    """An OrderedDict of the class, past its `__init__`."""
    made: Any = collections.OrderedDict.__new__(cls)
    fill_ordered(made, items)
    return made


def fill_ordered(box: Any, items: dict[Any, Any]) -> None:
    """New contents for an OrderedDict. What dict's own methods write to one has no place in its order."""
    collections.OrderedDict.clear(box)
    for key, item in items.items():
        collections.OrderedDict.__setitem__(box, key, item)


def push_items(emit: Emitter, entity: Entity) -> None:
    for key, item in (entity.items or {}).values():
        emit.value(key)
        emit.value(item)
    emit.op("BUILD", ("map", len(entity.items or {})))


@replays(dict)
def replay_dict(emit: Emitter, entity: Entity) -> None:
    """The new contents are made first: they may be fetched from the old."""
    if issubclass(entity.pytype, collections.OrderedDict):
        emit.function(fill_ordered)
        emit.local(entity)
        push_items(emit, entity)
        emit.op("CALL", (2, ()))
        emit.op("POP")
        return
    push_items(emit, entity)
    for method, count in (("clear", 0), ("update", 1)):
        emit.function(getattr(dict, method))
        emit.local(entity)
        if count:
            emit.op("COPY", 4)
        emit.op("CALL", (count + 1, ()))
        emit.op("POP")
    emit.op("POP")

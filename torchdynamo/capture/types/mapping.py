"""dict and its subclasses, their views, and an instance's `__dict__`."""

from __future__ import annotations

import collections
import enum
import types
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from torchdynamo.capture import attributes
from torchdynamo.capture.heap import MISSING, Entity
from torchdynamo.capture.lookup import class_lookup, guarded_lookup, hashed_by_code, instance_dict
from torchdynamo.capture.machine import Ref
from torchdynamo.capture.model import MODELS, Emitter, find_slot, iterates, models, rebuilds, replays
from torchdynamo.capture.signals import Break, Restart
from torchdynamo.capture.source import Pinned, Source
from torchdynamo.capture.types.weak import Weakly, is_reference, real_key
from torchdynamo.capture.value import ABSENT, FALSE, NONE, TRUE, Graphed, Known, Object, Opaque, Value, boolean
from torchdynamo.capture.wrap import CONSTANTS

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine

Items = dict[Any, tuple[Value | None, Value]]
BY_IDENTITY = (type, types.FunctionType, types.ModuleType, types.BuiltinFunctionType, enum.Enum, weakref.ReferenceType)


class OfInstance(NamedTuple):
    """The note of a dict that is some instance's `__dict__`: its contents are that instance's attributes."""

    owner: Object


def items_of(vm: Machine, value: Object) -> Items:
    """The items as they are now, in order; values nothing has read yet are Opaque."""
    entity = vm.entity(value)
    if entity.note.__class__ is OfInstance:
        return instance_items(vm, entity.note.owner)
    if entity.items is None:
        entity.items = {}
        if entity.real is not MISSING:
            assert entity.source is not None
            for key in ordered_keys(entity.real):
                item = dict.__getitem__(entity.real, key)
                hkey, known = entry_key(vm, key)
                opaque = ABSENT if known is None else Opaque(type(item), Source("key", entity.source, key))
                entity.items[hkey] = (known, opaque)
    items: Items = entity.items
    return items


def entry_key(vm: Machine, key: Any) -> tuple[Any, Value | None]:
    """What stands for a key that was there at entry, and the key as a value, if it may stand in a path."""
    if is_reference(key):
        hkey = real_key(key)
        if hkey is not None:
            return hkey, vm.heap.by_id.get(id(key)) or vm.heap.adopt(key, Source("pinned", None, Pinned(key)))
    elif sourceable(key):
        return key, Known(key)
    return Ref(id(key)), None


def ordered_keys(real: Any) -> tuple[Any, ...]:
    """The keys in order: an OrderedDict keeps its own."""
    return tuple(collections.OrderedDict.keys(real) if isinstance(real, collections.OrderedDict) else dict.keys(real))


def sourceable(key: Any) -> bool:
    """Keys that may stand in a path: constants, and what is its own identity."""
    if type(key) is tuple:
        return all(sourceable(item) for item in key)
    return type(key) in CONSTANTS or isinstance(key, BY_IDENTITY)


MANY = 10_000  # keys that are still compared with at each call


def whole(vm: Machine, value: Object) -> Items:
    """The items, for an operation that depends on which keys there are and in which order."""
    entity = vm.entity(value)
    items = items_of(vm, value)
    if entity.real is not MISSING and entity.note is None:
        assert entity.source is not None
        if len(entity.real) > MANY:
            raise Break("too long to follow", name="dict")
        vm.guard(entity.source, "DICT_KEYS", ordered_keys(entity.real))
        if any(not sourceable(key) for key in dict.keys(entity.real)):
            raise Break("unsupported key", type="object")
    return items


def instance_items(vm: Machine, owner: Object) -> Items:
    """All attributes of an instance."""
    entity = vm.entity(owner)
    names: dict[str, None] = {}
    if entity.real is not MISSING:
        assert entity.source is not None
        own = instance_dict(entity.real) or {}
        vm.guard(Source("dict", entity.source), "DICT_KEYS", tuple(own))
        names = dict.fromkeys(own)
    names.update(dict.fromkeys(name for name in entity.attrs if not kept_elsewhere(owner.pytype, name)))
    found = {name: attributes.read_instance(vm, entity, name) for name in names}
    return {name: (Known(name), value) for name, value in found.items() if value is not None}


def kept_elsewhere(cls: type, name: str) -> bool:
    """A slot, or what C keeps in the object itself, is not in its `__dict__`."""
    return type(class_lookup(cls, name)) in (types.MemberDescriptorType, types.GetSetDescriptorType)


def lookup(vm: Machine, value: Object, key: Value) -> Value | None:
    """The item under a key, or None."""
    entity = vm.entity(value)
    hkey = vm.hkey(key)
    if entity.note.__class__ is OfInstance:
        if type(hkey) is not str or kept_elsewhere(entity.note.owner.pytype, hkey):
            return None
        return attributes.read_instance(vm, vm.entity(entity.note.owner), hkey)
    items = items_of(vm, value)
    found = items.get(hkey)
    if found is None:
        if entity.source is not None and not dict.__contains__(entity.real, hkey):
            where = source_of_tensor(key)
            if where is not None:
                vm.guard(entity.source, "NOT_KEYED", where)
            elif hkey.__class__ is Weakly:
                for other, _ in list(whole(vm, value).values()):
                    vm.hkey(other or NONE)  # looked at, and so told apart
            elif not sourceable(getattr(key, "obj", ABSENT)):
                raise Break("unsupported key", type=key.pytype.__name__)
            else:
                vm.guard(entity.source, "NO_KEY", hkey)
        return None
    if hkey.__class__ is Weakly and entity.source is not None and found[0] is not None:
        vm.hkey(found[0])  # looked at: it refers to that object
    if found[1] is ABSENT:
        where = source_of_tensor(key)
        if where is None or entity.source is None:
            raise Break("unsupported key", type="object")
        source = Source("keyed", entity.source, where)
        read = vm.wrap(source.load(vm.roots), source)
        items[hkey] = (key, read)
        return read
    if found[1].__class__ is Opaque:
        read = vm.look(found[1])
        items[hkey] = (found[0], read)
        return read
    return found[1]


def source_of_tensor(key: Value) -> Source | None:
    """Where a tensor that is a key was at entry: tensors as keys are known by identity, and by nothing else."""
    return key.source if isinstance(key, Graphed) else None


def store(vm: Machine, value: Object, key: Value, item: Value) -> None:
    entity = vm.entity(value)
    hkey = vm.hkey(key)
    if entity.note.__class__ is OfInstance:
        vm.entity(entity.note.owner).attrs[hkey] = item
        return
    items = whole(vm, value) if entity.real is not MISSING and not entity.touched else items_of(vm, value)
    old = items.get(hkey)
    items[hkey] = (old[0] if old else key, item)
    entity.touched = True


def remove(vm: Machine, value: Object, key: Value) -> Value | None:
    found = lookup(vm, value, key)
    if found is None:
        return None
    entity = vm.entity(value)
    if entity.note.__class__ is OfInstance:
        vm.entity(entity.note.owner).attrs[vm.hkey(key)] = ABSENT
    else:
        del whole(vm, value)[vm.hkey(key)]
        entity.touched = True
    return found


def pairs(vm: Machine, self: Object) -> list[tuple[Value, Value]]:
    """All items, looked at."""
    return [(key, lookup(vm, self, key) or NONE) for key in list(keys_of(vm, self))]


MODELS[dict, "<items>"] = pairs


def keys_of(vm: Machine, value: Object) -> Iterator[Value]:
    """Keys in order; a change of size meanwhile is an error, as in Python."""
    items = whole(vm, value)
    size = len(items)
    for key, _ in list(items.values()):
        if len(items_of(vm, value)) != size:
            raise vm.error(RuntimeError, "dictionary changed size during iteration")
        if key is None:
            raise Break("unsupported key", type="object")
        yield key


@models(dict, "<of instance>")
def of_instance(vm: Machine, owner: Object) -> Value:
    entity = vm.entity(owner)
    known = entity.loaded.get("__dict__")
    if known is None:
        known = entity.loaded["__dict__"] = vm.new(dict, note=OfInstance(owner))
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
    raise vm.error(KeyError, vm.concrete(key))


@models(collections.defaultdict, "__missing__")
def missing(vm: Machine, self: Object, key: Value) -> Value:
    factory = vm.getattr(self, "default_factory")
    if factory.__class__ is Known and factory.obj is None:
        raise vm.error(KeyError, vm.concrete(key))
    made = vm.call(factory, [], {})
    vm.setitem(self, key, made)
    return made


@models(collections.defaultdict, "__init__")
def defaultdict_init(vm: Machine, self: Object, factory: Value = NONE, /, *args: Value, **kwargs: Value) -> Value:
    vm.entity(self).attrs["default_factory"] = factory
    return init(vm, self, *args, **kwargs)


@models(dict, "__setitem__")
def setitem(vm: Machine, self: Object, key: Value, item: Value) -> Value:
    store(vm, self, key, item)
    return NONE


@models(dict, "__delitem__")
def delitem(vm: Machine, self: Object, key: Value) -> Value:
    if remove(vm, self, key) is None:
        raise vm.error(KeyError, vm.concrete(key))
    return NONE


@models(dict, "__contains__", "has_key")
def contains(vm: Machine, self: Object, key: Value) -> Value:
    entity = vm.entity(self)
    hkey = vm.hkey(key)
    if entity.real is not MISSING and entity.note is None and not entity.touched and entity.source is not None:
        if hkey.__class__ is Weakly:
            return boolean(lookup(vm, self, key) is not None)
        if not sourceable(getattr(key, "obj", ABSENT)):
            raise Break("unsupported key", type=key.pytype.__name__)
        present = dict.__contains__(entity.real, hkey)
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
    found = lookup(vm, self, key)
    if found is None:
        store(vm, self, key, default)
        return default
    return found


@models(dict, "pop")
def pop(vm: Machine, self: Object, key: Value, *default: Value) -> Value:
    found = remove(vm, self, key)
    if found is not None:
        return found
    if not default:
        raise vm.error(KeyError, vm.concrete(key))
    return default[0]


@models(dict, "popitem")
def popitem(vm: Machine, self: Object, last: Value = TRUE) -> Value:
    keys = list(keys_of(vm, self))
    if not keys:
        raise vm.error(KeyError, "popitem(): dictionary is empty")
    key = keys[-1] if vm.truth(last) else keys[0]
    return vm.make_tuple([key, remove(vm, self, key) or NONE])


@models(collections.OrderedDict, "move_to_end")
def move_to_end(vm: Machine, self: Object, key: Value, last: Value = TRUE) -> Value:
    found = remove(vm, self, key)
    if found is None:
        raise vm.error(KeyError, vm.concrete(key))
    store(vm, self, key, found)
    if not vm.truth(last):
        items = items_of(vm, self)
        moved = {vm.hkey(key): items.pop(vm.hkey(key))}
        vm.entity(self).items = {**moved, **items}
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
    for key in list(keys_of(vm, self)):
        remove(vm, self, key)
    return NONE


@models(dict, "copy")
def copy(vm: Machine, self: Object) -> Object:
    kept = issubclass(self.pytype, (collections.OrderedDict, collections.defaultdict))
    made = vm.new(self.pytype if kept else dict, {})
    if "default_factory" in vm.entity(self).attrs or self.pytype is collections.defaultdict:
        vm.entity(made).attrs["default_factory"] = vm.getattr(self, "default_factory")
    for key, item in pairs(vm, self):
        store(vm, made, key, item)
    return made


@models(dict, "__ior__")
def in_place_or(vm: Machine, self: Object, other: Value) -> Value:
    update(vm, self, other)
    return self


@models(dict, "update")
def update(vm: Machine, self: Object, /, *others: Value, **kwargs: Value) -> Value:
    for other in others:
        if other.__class__ is Object and (
            issubclass(other.pytype, dict) or find_slot(other.pytype, "keys")[0] != "missing"
        ):
            new: Any = vm.dict_items(other)
        else:
            new = (tuple(vm.unpack(pair, 2)) for pair in vm.iterate(other))
        for key, item in new:
            put(vm, self, key, item)
    for name, item in kwargs.items():
        put(vm, self, Known(name), item)
    return NONE


def put(vm: Machine, self: Object, key: Value, item: Value) -> None:
    """How `update` writes: an OrderedDict goes through the class's `__setitem__`, a dict past it."""
    if issubclass(self.pytype, collections.OrderedDict):
        vm.setitem(self, key, item)
    else:
        store(vm, self, key, item)


@models(dict, "__or__")
def union(vm: Machine, self: Object, other: Value) -> Value:
    if not issubclass(other.pytype, dict):
        return Known(NotImplemented)
    made = copy(vm, self)
    update(vm, made, other)
    return made


@models(dict, "__eq__")
def equal(vm: Machine, self: Object, other: Value) -> Value:
    if not issubclass(other.pytype, dict) or other.__class__ is not Object:
        return Known(NotImplemented)
    left, right = pairs(vm, self), {vm.hkey(k): v for k, v in pairs(vm, other)}
    if len(left) != len(right):
        return FALSE
    for key, item in left:
        match = right.get(vm.hkey(key))
        if match is None or not (vm.identical(item, match) or vm.truth(vm.binary("==", item, match))):
            return FALSE
    return boolean(True)


@models(dict, "fromkeys")
def fromkeys(vm: Machine, cls: Value, keys: Value, value: Value = NONE) -> Value:
    """Into what calling the class gives, as items are stored in it."""
    made = vm.call(cls, [], {})
    for key in vm.iterate(keys):
        vm.setitem(made, key, value)
    return made


@models(dict, "__new__")
def new(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    return vm.new(cls.obj, {})


@models(dict, "__init__")
def init(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    update(vm, self, *args, **kwargs)
    return NONE


@rebuilds(dict)
def rebuild_dict(emit: Emitter, entity: Entity) -> None:
    if entity.note.__class__ is OfInstance:
        emit.value(entity.note.owner)
        emit.op("LOAD_ATTR", "__dict__")
        return
    if any(key.__class__ is Object and hashed_by_code(key.pytype) for key, _ in (entity.items or {}).values()):
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

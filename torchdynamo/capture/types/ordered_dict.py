"""collections.OrderedDict: what it says otherwise than dict does."""

from __future__ import annotations

import collections
from typing import Any

from torchdynamo.bytecode import versions
from torchdynamo.capture.types.items import each_item, items_of, items_to_write, push_items, store_under
from torchdynamo.capture.types.keys import key_error
from torchdynamo.capture.types.mapping import check_keys, equal
from torchdynamo.capture.vm.call import apply
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.lookup import guarded_slot
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import MODELS, Emitter, models, rebuilds, replays
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, TRUE, Known, Object, Value, boolean


@models(collections.OrderedDict, "move_to_end")
def move_to_end(vm: Machine, self: Object, key: Value, last: Value = TRUE) -> Value:
    entity, hkey = vm.entity(self), vm.hkey(key)
    found = items_to_write(vm, self).pop(hkey, None)
    if found is None:
        raise key_error(vm, key)
    entity.version += 1
    moved = {hkey: found}
    entity.items = {**entity.items, **moved} if vm.truth(last) else {**moved, **entity.items}
    return NONE


@models(collections.OrderedDict, "__eq__")
def equal_in_order(vm: Machine, self: Object, other: Value) -> Value:
    """Compare two dicts; order counts if both are OrderedDicts."""
    same = equal(vm, self, other)
    if same.obj is not True or not issubclass(other.pytype, collections.OrderedDict):  # type: ignore[union-attr]
        return same
    return boolean(list(items_of(vm, self)) == list(items_of(vm, other)))  # type: ignore[arg-type]


@models(collections.OrderedDict, "copy", "__copy__")
def copy_ordered(vm: Machine, self: Object) -> Value:
    """Return a copy of the same class; a subclass is asked for each item."""
    made = vm.as_object(vm.call(Known(self.pytype), [], {}))
    exact = self.pytype is collections.OrderedDict
    for hkey, key, item in each_item(vm, self):
        if exact:
            store_under(vm, made, key, hkey, item)
        else:
            vm.setitem(made, key, vm.getitem(self, key))
    return made


def past_order(name: str) -> None:
    """Register a method of dict as a break: what it leaves of an OrderedDict is in no order that Python keeps."""
    row = MODELS[dict, name]

    def of_dict(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
        if issubclass(self.pytype, collections.OrderedDict):
            raise Break("unsupported method", name=name, type="dict")
        return apply(vm, row, getattr(dict, name), [self, *args], kwargs)

    models(collections.OrderedDict, name)(row)
    models(dict, name)(of_dict)


for _name in ("__setitem__", "__delitem__", "pop", "popitem", "setdefault", "clear", "update"):
    past_order(_name)


def by_operators(name: str) -> None:
    """Register a method that takes an item out as a break for classes with operators of their own: it asks those."""
    row = MODELS[collections.OrderedDict, name]

    def taken(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
        asked = ("__contains__", "__getitem__", "__delitem__")
        if any(guarded_slot(vm, self.pytype, each)[0] != "model" for each in asked):
            raise Break("unsupported method", name=name, type=self.pytype.__name__)
        return apply(vm, row, getattr(collections.OrderedDict, name), [self, *args], kwargs)

    models(collections.OrderedDict, name)(taken)


for _name in ("pop", "popitem") if versions.ORDERED_POP_ASKS else ():
    by_operators(_name)


@rebuilds(collections.OrderedDict)
def rebuild(emit: Emitter, entity: Entity) -> None:
    check_keys(entity)
    emit.function(make_ordered)
    emit.const(entity.pytype)
    push_items(emit, entity)
    emit.op("CALL", (2, ()))
    if entity.pytype is collections.OrderedDict:
        emit.fields(entity.attrs)  # of subclasses they are set as of any class


def make_ordered(cls: type, items: dict[Any, Any]) -> Any:
    """Return an OrderedDict of the class without calling the class's `__init__`."""
    made: Any = collections.OrderedDict.__new__(cls)
    fill_ordered(made, items)
    return made


def fill_ordered(box: Any, items: dict[Any, Any]) -> None:
    """Replace the contents of an OrderedDict by its own methods: dict's would not write to its order."""
    collections.OrderedDict.clear(box)
    for key, item in items.items():
        collections.OrderedDict.__setitem__(box, key, item)


@replays(collections.OrderedDict)
def replay(emit: Emitter, entity: Entity) -> None:
    emit.function(fill_ordered)
    emit.local(entity)
    push_items(emit, entity)
    emit.op("CALL", (2, ()))
    emit.op("POP")

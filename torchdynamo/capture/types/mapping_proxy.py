"""types.MappingProxyType: whatever it is asked, the mapping behind it answers."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from torchdynamo.capture.types.texts import text_of
from torchdynamo.capture.vm.emitted_calls import push_call
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.lookup import guarded_own
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import CLASS_DICT, Emitter, Model, enters, iterates, models, rebuilds
from torchdynamo.capture.vm.wrap import class_attribute, wrap
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Pinned, Source
from torchdynamo.core.value import NONE, Known, Object, Value, boolean

PROXY = types.MappingProxyType


class OfMapping(NamedTuple):
    """The payload of a proxy that shows a mapping."""

    mapping: Value


class OfClass(NamedTuple):
    """The payload of a proxy that shows what a class itself says, its bases aside."""

    cls: type


@enters(PROXY)
def enter(vm: Machine, obj: Any, source: Source) -> Value:
    """Wrap a proxy that existed, guarded by the mapping that it shows for all its life."""
    (mapping,) = gc.get_referents(obj)
    pinned = Source("pinned", None, Pinned(obj))
    if source is not pinned:
        vm.guard(source, "SAME_OBJECT", pinned)
    value = vm.heap.adopt(obj, source)
    vm.entity(value).payload = OfMapping(wrap(vm, mapping, Source("pinned", None, Pinned(mapping))))
    return value


def mapping_of(vm: Machine, self: Object) -> Value:
    shown = vm.entity(self).payload_if(OfMapping)
    if shown is None:
        raise Break("unsupported method", name="__iter__", type="mappingproxy")
    return shown.mapping


@models(PROXY, "__new__")
def new(vm: Machine, cls: Known, mapping: Value) -> Value:
    if mapping.__class__ is not Object or not issubclass(mapping.pytype, dict):
        raise Break("unsupported type", type="mappingproxy")
    return vm.new(PROXY, payload=OfMapping(mapping))


@models(PROXY, "__init__")
def init(vm: Machine, self: Object, *args: Value) -> Value:
    return self


@iterates(PROXY)
def iterate(vm: Machine, self: Object) -> Iterator[Value]:
    return vm.iterate(mapping_of(vm, self))


@CLASS_DICT.register(type)
def of_class(vm: Machine, cls: type) -> Value:
    return vm.new(PROXY, payload=OfClass(cls))


def own(vm: Machine, cls: type, asked: str, key: Value, *default: Value) -> Value:
    """Return one name of a class's `__dict__`: guards are on what is asked of a class, not on all it has."""
    name = vm.known(key, "name")
    if (
        type(name) is not str
        or asked not in ("get", "__getitem__", "__contains__")
        or vm.effects.written(cls, name) is not None
    ):
        raise Break("unsupported method", name=asked, type="mappingproxy")
    found = guarded_own(vm, cls, name)
    if asked == "__contains__":
        return boolean(found is not MISSING)
    if found is not MISSING:
        return wrap(vm, found, class_attribute(vm, cls, name))
    if asked == "__getitem__":
        raise vm.error(KeyError, name)
    return default[0] if default else NONE


def passed_on(name: str) -> Model:
    def row(vm: Machine, self: Object, *args: Value) -> Value:
        shown = vm.entity(self).payload_if(OfClass)
        if shown is not None:
            if not args:
                raise Break("unsupported method", name=name, type="mappingproxy")
            return own(vm, shown.cls, name, *args)
        return vm.call_method(mapping_of(vm, self), name, *args)

    return row


for _name in (
    *("keys", "values", "items", "get", "copy", "__getitem__", "__contains__", "__len__"),
    *("__eq__", "__ne__", "__or__", "__reversed__"),
):
    models(PROXY, _name)(passed_on(_name))


@models(PROXY, "__repr__")
def written(vm: Machine, self: Object) -> Value:
    return Known(f"mappingproxy({text_of(vm, mapping_of(vm, self))})")


@models(PROXY, "__str__")
def shown(vm: Machine, self: Object) -> Value:
    return vm.call(Known(str), [mapping_of(vm, self)], {})


@rebuilds(PROXY)
def rebuild(emit: Emitter, entity: Entity) -> None:
    if entity.payload.__class__ is OfClass:
        push_call(emit, vars, entity.payload.cls)
    else:
        push_call(emit, PROXY, entity.payload_as(OfMapping).mapping)

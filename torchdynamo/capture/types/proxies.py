"""types.MappingProxyType: whatever it is asked, the mapping behind it answers."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.heap import Entity
from torchdynamo.capture.model import Emitter, Model, enters, iterates, models, rebuilds
from torchdynamo.capture.signals import Break
from torchdynamo.capture.source import Pinned, Source
from torchdynamo.capture.value import Known, Object, Value
from torchdynamo.capture.wrap import wrap

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine

PROXY = types.MappingProxyType


@enters(PROXY)
def enter(vm: Machine, obj: Any, source: Source) -> Value:
    """A proxy shows one mapping for all its life: to be the same proxy is to show the same mapping."""
    (mapping,) = gc.get_referents(obj)
    pinned = Source("pinned", None, Pinned(obj))
    if source is not pinned:
        vm.guard(source, "SAME_OBJECT", pinned)
    value = vm.heap.adopt(obj, source)
    vm.entity(value).note = wrap(vm, mapping, Source("pinned", None, Pinned(mapping)))
    return value


def mapping_of(vm: Machine, self: Value) -> Value:
    found: Value = vm.entity(self).note  # type: ignore[arg-type]
    return found


@models(PROXY, "__new__")
def new(vm: Machine, cls: Known, mapping: Value) -> Value:
    if mapping.__class__ is not Object or not issubclass(mapping.pytype, dict):
        raise Break("unsupported type", type="mappingproxy")
    return vm.new(PROXY, note=mapping)


@models(PROXY, "__init__")
def init(vm: Machine, self: Object, *args: Value) -> Value:
    return self


@iterates(PROXY)
def iterate(vm: Machine, self: Object) -> Iterator[Value]:
    return vm.iterate(mapping_of(vm, self))


def passed_on(name: str) -> Model:
    def row(vm: Machine, self: Object, *args: Value) -> Value:
        return vm.call_method(mapping_of(vm, self), name, *args)

    return row


for _name in (
    *("keys", "values", "items", "get", "copy", "__getitem__", "__contains__", "__len__"),
    *("__eq__", "__ne__", "__or__", "__reversed__"),
):
    models(PROXY, _name)(passed_on(_name))


@rebuilds(PROXY)
def rebuild(emit: Emitter, entity: Entity) -> None:
    emit.function(PROXY)
    emit.value(entity.note)
    emit.op("CALL", (1, ()))

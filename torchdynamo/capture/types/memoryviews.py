"""memoryview of bytes, and of a bytearray that is followed: a real one stands beside it. It stays in the graph."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from torchdynamo.capture.types.bytearrays import contents, for_real
from torchdynamo.capture.types.iterators import iterated_by
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.model import COPY, Model, iterates, models
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


class MemoryOf(NamedTuple):
    """The payload of a memoryview that the frame made: whose bytes it shows."""

    owner: Value


@models(memoryview, "__new__")
def new(vm: Machine, cls: Known, object: Value) -> Value:
    owner = object
    if owner.__class__ is Object and owner.pytype is memoryview:
        return shown(vm, memoryview(view(vm, owner)), owner_of(vm, owner))
    if owner.__class__ is Object and owner.pytype is bytearray:
        return shown(vm, memoryview(contents(vm, owner)), owner)
    if owner.pytype is bytes:
        return shown(vm, memoryview(vm.known(owner, "bytes")), owner)
    raise Break("unsupported type", type=f"memoryview of {owner.pytype.__name__}")


def shown(vm: Machine, real: memoryview, owner: Value) -> Object:
    return vm.new(memoryview, real, MemoryOf(owner))


def owner_of(vm: Machine, self: Object) -> Value:
    return vm.entity(self).payload_as(MemoryOf).owner


def view(vm: Machine, self: Value) -> memoryview:
    entity = vm.entity(vm.as_object(self))
    if entity.real is not MISSING:
        raise Break("unsupported type", type="memoryview")
    found: memoryview = entity.items
    return found


COPY[memoryview] = lambda vm, value: view(vm, value)


def method(name: str) -> Model:
    fn = getattr(memoryview, name)

    def row(vm: Machine, self: Object, *args: Value, **kwargs: Value) -> Value:
        real, owner = view(vm, self), owner_of(vm, self)
        box = contents(vm, owner) if owner.__class__ is Object and owner.pytype is bytearray else b""
        before = bytes(box)
        result: Any = for_real(vm, fn, real, args, kwargs)
        if owner.__class__ is Object and before != box:
            vm.effects.items(vm.entity(owner))
        if result is real:
            return self
        return shown(vm, result, owner) if type(result) is memoryview else lift(vm, result)

    return row


@models(memoryview, "__init__")
def init(vm: Machine, self: Object, *args: Value) -> Value:
    return NONE


OTHERWISE = ("__new__", "__init__", "__iter__", "__getattribute__", "__buffer__", "__release_buffer__", "__hash__")
for _name, _found in vars(memoryview).items():
    if type(_found) in (types.MethodDescriptorType, types.WrapperDescriptorType) and _name not in OTHERWISE:
        models(memoryview, _name)(method(_name))


def field(name: str) -> Model:
    def row(vm: Machine, self: Object) -> Value:
        return owner_of(vm, self) if name == "obj" else lift(vm, getattr(view(vm, self), name))

    return row


for _name, _found in vars(memoryview).items():
    if type(_found) is types.GetSetDescriptorType:
        models(memoryview, "." + _name)(field(_name))


@iterates(memoryview)
def iterate(vm: Machine, self: Object) -> Iterator[Value]:
    return (lift(vm, item) for item in view(vm, self))


iterated_by(memoryview, type(iter(memoryview(b""))))

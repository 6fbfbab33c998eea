"""memoryview of bytes, and of a bytearray that has a shadow: a view of that is its shadow. It stays in the graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from torchdynamo.capture.types.bytearrays import bytes_of, contents
from torchdynamo.capture.types.iterators import iterated_by
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import COPY, iterates, models
from torchdynamo.capture.vm.shadows import Shadow, shadows
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, Known, Object, Value


class MemoryOf(NamedTuple):
    """The payload of a memoryview that the frame made: whose bytes it shows."""

    owner: Value


@models(memoryview, "__new__")
def new(vm: Machine, cls: Known, object: Value) -> Value:
    owner = object
    if owner.__class__ is Object and owner.pytype is memoryview:
        return view_of(vm, memoryview(view(vm, owner)), owner_of(vm, owner))
    if owner.__class__ is Object and owner.pytype is bytearray:
        return view_of(vm, memoryview(contents(vm, owner)), owner)
    if owner.pytype is bytes:
        return view_of(vm, memoryview(vm.known(owner, "bytes")), owner)
    raise Break("unsupported type", type=f"memoryview of {owner.pytype.__name__}")


def view_of(vm: Machine, real: memoryview, owner: Value) -> Object:
    """Make the value of a view of what `owner` holds."""
    return vm.new(memoryview, real, MemoryOf(owner))


def owner_of(vm: Machine, self: Object) -> Value:
    """Return the bytes or the bytearray that is viewed."""
    return vm.entity(self).payload_as(MemoryOf).owner


def written(vm: Machine, self: Object) -> Object | None:
    """Return the bytearray that writing through the view changes; None if bytes are viewed."""
    owner = owner_of(vm, self)
    return owner if owner.__class__ is Object and owner.pytype is bytearray else None


def view(vm: Machine, self: Object, name: str = "") -> memoryview:
    """Return the shadow. Ends the graph for a view that existed."""
    entity = vm.entity(self)
    if entity.real is not MISSING:
        raise Break("unsupported type", type="memoryview")
    found: memoryview = entity.items
    return found


def result_of(vm: Machine, self: Object, name: str, result: Any) -> Value:
    """Return the value of what a method gave, which may be another view of the same memory."""
    return view_of(vm, result, owner_of(vm, self)) if type(result) is memoryview else lift(vm, result)


COPY[memoryview] = lambda vm, value: view(vm, value)
shadows(memoryview, Shadow(view, bytes, holder=written, argument=bytes_of, result=result_of), own="__hash__")


@models(memoryview, "__init__")
def init(vm: Machine, self: Object, *args: Value) -> Value:
    return NONE


@models(memoryview, ".obj")
def viewed(vm: Machine, self: Object) -> Value:
    return owner_of(vm, self)


@iterates(memoryview)
def iterate(vm: Machine, self: Object) -> Iterator[Value]:
    return (lift(vm, item) for item in view(vm, self))


iterated_by(memoryview, type(iter(memoryview(b""))))

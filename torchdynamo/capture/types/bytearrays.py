"""bytearray: its bytes are constants, and a shadow holds them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from torchdynamo.capture.types.iterators import iterated_by
from torchdynamo.capture.vm.emitted_calls import push_call, replay_call
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import COPY, Emitter, iterates, models, rebuilds, replays
from torchdynamo.capture.vm.scalar_subclasses import indexed
from torchdynamo.capture.vm.shadows import Shadow, argument_of, run, shadows
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.source import Source
from torchdynamo.core.value import Known, Object, Value

LARGEST = 1 << 16  # bytes that are still compared at each call


def contents(vm: Machine, self: Object, name: str = "") -> bytearray:
    """Return the shadow; that of one that existed is a copy, under a guard of its bytes."""
    entity = vm.entity(self)
    if entity.items is None:
        assert entity.source is not None
        if self.pytype is not bytearray or len(entity.real) > LARGEST:
            raise Break("unsupported type", type=self.pytype.__name__)
        vm.guard(Source("method", entity.source, "hex"), "EQUALS_MATCH", entity.real.hex())
        entity.items = bytearray(entity.real)
    held: bytearray = entity.items
    return held


COPY[bytearray] = lambda vm, value: bytearray(contents(vm, value))


def bytes_of(vm: Machine, arg: Value) -> Any:
    """Return an argument as a real object; iterators of bytes are run to their end."""
    if arg.__class__ is Object and "__next__" in dir(arg.pytype):
        return [vm.concretely(item) for item in vm.iterate(arg)]
    return argument_of(vm, arg)


def result_of(vm: Machine, self: Object, name: str, result: Any) -> Value:
    """Return the value of what a method gave. Ends the graph if it gave a bytearray that existed another length."""
    entity = vm.entity(self)
    if not entity.fresh and len(entity.items) != len(entity.real):  # views of it, wherever, make that an error
        raise Break("unsupported method", name=name, type="bytearray")
    return vm.new(bytearray, result) if type(result) is bytearray else lift(vm, result)


SHADOW = Shadow(contents, state=bytes, argument=bytes_of, result=result_of)
shadows(bytearray, SHADOW, own="__sizeof__ __reduce__ __reduce_ex__")


@models(bytearray, "__new__")
def new(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    return vm.new(cls.obj, bytearray())


@models(bytearray, "__init__")
def init(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    given = (*map(partial(indexed, vm), args[:1]), *args[1:])  # a length, if the object is an index
    run(vm, SHADOW, "__init__", self, given, kwargs)
    return result_of(vm, self, "__init__", None)


@models(bytearray, "fromhex")
def fromhex(vm: Machine, cls: Known, text: Value) -> Value:
    return vm.call(cls, [vm.call(Known(bytes.fromhex), [text], {})], {})


@models(bytearray, "__reduce_ex__")
def reduce_ex(vm: Machine, self: Object, protocol: Value) -> Value:
    if self.pytype is not bytearray:
        raise Break("unsupported method", name="__reduce_ex__", type=self.pytype.__name__)
    return vm.make_tuple([Known(bytearray), Known((bytes(contents(vm, self)),))])


@iterates(bytearray)
def iterate(vm: Machine, self: Object) -> Iterator[Value]:
    held = contents(vm, self)
    at = 0
    while at < len(held):
        yield Known(held[at])
        at += 1


iterated_by(bytearray, type(iter(bytearray())))


@rebuilds(bytearray)
def rebuild(emit: Emitter, entity: Entity) -> None:
    if entity.pytype is not bytearray:
        raise Restart(entity.born - 1)
    push_call(emit, bytearray, bytes(entity.items))


@replays(bytearray)
def replay(emit: Emitter, entity: Entity) -> None:
    replay_call(emit, bytearray.__setitem__, entity, slice(None), bytes(entity.items))

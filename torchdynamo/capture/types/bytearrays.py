"""bytearray: a real one stands beside it, on which every method is done. Its bytes are constants."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.types.iterators import iterated_by
from torchdynamo.capture.vm.model import COPY, Emitter, Model, iterates, models, rebuilds, replays
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.source import Source
from torchdynamo.core.value import NONE, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.heap import Entity
    from torchdynamo.capture.vm.machine import Machine

MOST = 1 << 16  # bytes that are still compared at each call


def contents(vm: Machine, self: Object) -> bytearray:
    """The real one; what existed is copied."""
    entity = vm.entity(self)
    if entity.items is None:
        assert entity.source is not None
        if len(entity.real) > MOST or self.pytype is not bytearray:
            raise Break("unsupported type", type=self.pytype.__name__)
        vm.guard(Source("method", entity.source, "hex"), "EQUALS_MATCH", entity.real.hex())
        entity.items = bytearray(entity.real)
    box: bytearray = entity.items
    return box


COPY[bytearray] = lambda vm, value: bytearray(contents(vm, value))


def given(vm: Machine, arg: Value) -> Any:
    """An argument for real; iterators of bytes are run through."""
    if arg.__class__ is Object and "__next__" in dir(arg.pytype):
        return [vm.concretely(item) for item in vm.iterate(arg)]
    return vm.concretely(arg)


def for_real(vm: Machine, fn: Any, box: Any, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Any:
    """Call a method of the real one."""
    real = [given(vm, arg) for arg in args]
    try:
        return fn(box, *real, **{name: given(vm, value) for name, value in kwargs.items()})
    except BufferError:  # views that nobody has any more are still held here
        raise Break("unsupported method", name=fn.__name__, type=type(box).__name__) from None
    except Exception as error:
        raise vm.error(type(error), *error.args) from None


def method(name: str) -> Model:
    fn = getattr(bytearray, name)

    def row(vm: Machine, self: Object, *args: Value, **kwargs: Value) -> Value:
        box = contents(vm, self)
        before = bytes(box)
        result = for_real(vm, fn, box, args, kwargs)
        entity = vm.entity(self)
        if before != box:
            vm.effects.items(entity)
        if not entity.fresh and len(box) != len(before):  # a view of it, wherever that is, makes this an error
            raise Break("unsupported method", name=fn.__name__, type="bytearray")
        if result is box:
            return self
        return vm.new(bytearray, result) if type(result) is bytearray else lift(vm, result)

    return row


OTHERWISE = ("__new__", "__init__", "__iter__", "__getattribute__", "__buffer__", "__release_buffer__", "__sizeof__",
             "__reduce__", "__reduce_ex__")  # fmt: skip
for _name, _found in vars(bytearray).items():
    if type(_found) in (types.MethodDescriptorType, types.WrapperDescriptorType) and _name not in OTHERWISE:
        models(bytearray, _name)(method(_name))


@models(bytearray, "__new__")
def new(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    return vm.new(cls.obj, bytearray())


@models(bytearray, "__init__")
def init(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    for_real(vm, bytearray.__init__, contents(vm, self), args, kwargs)
    vm.effects.items(vm.entity(self))
    return NONE


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
    box = contents(vm, self)
    at = 0
    while at < len(box):
        yield Known(box[at])
        at += 1


iterated_by(bytearray, type(iter(bytearray())))


@rebuilds(bytearray)
def rebuild(emit: Emitter, entity: Entity) -> None:
    if entity.pytype is not bytearray:
        raise Restart(entity.born - 1)
    emit.function(bytearray)
    emit.const(bytes(entity.items))
    emit.op("CALL", (1, ()))


@replays(bytearray)
def replay(emit: Emitter, entity: Entity) -> None:
    emit.const(bytes(entity.items))
    emit.local(entity)
    emit.const(slice(None))
    emit.op("SETITEM")

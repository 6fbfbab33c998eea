"""io.StringIO and io.BytesIO that the frame makes: a real one stands beside each, on which every method is done."""

from __future__ import annotations

import io
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.vm.model import Emitter, Model, iterates, models, rebuilds
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.value import FALSE, NONE, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.heap import Entity
    from torchdynamo.capture.vm.machine import Machine

FILES: tuple[Any, ...] = (io.StringIO, io.BytesIO)
OTHERWISE = frozenset("__new__ __init__ __iter__ __next__ __getattribute__ __setattr__ __del__ getbuffer".split())


def contents(vm: Machine, self: Object) -> Any:
    """The real one. What is in a file that existed may be much, and another in each call."""
    entity = vm.entity(self)
    if not entity.fresh:
        raise Break("unsupported type", type=self.pytype.__name__)
    return entity.items


def for_real(vm: Machine, self: Object, name: str, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Any:
    """Call a method of the real one."""
    box, real = contents(vm, self), [vm.concretely(arg) for arg in args]
    vm.effects.items(vm.entity(self))  # reading moves its place
    try:
        return getattr(type(box), name)(box, *real, **{key: vm.concretely(value) for key, value in kwargs.items()})
    except Exception as error:
        raise vm.error(type(error), *error.args) from None


def method(name: str) -> Model:
    def row(vm: Machine, self: Object, *args: Value, **kwargs: Value) -> Value:
        result = for_real(vm, self, name, args, kwargs)
        return self if result is contents(vm, self) else lift(vm, result)

    return row


def attribute(name: str) -> Model:
    def row(vm: Machine, self: Object) -> Value:
        return lift(vm, for_real(vm, self, "__getattribute__", (Known(name),), {}))

    return row


def rows(cls: Any) -> None:
    """The methods and attributes, those of the bases too."""
    for name in dir(cls):
        owner = next(base for base in cls.__mro__ if name in vars(base))
        found = vars(owner)[name]
        if owner is not object and name not in OTHERWISE:
            if type(found) in (types.MethodDescriptorType, types.WrapperDescriptorType):
                models(owner, name)(method(name))
            elif type(found) is types.GetSetDescriptorType:
                models(cls, "." + name)(attribute(name))


for _cls in FILES:
    rows(_cls)


def new(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    """Written by its `__init__`."""
    if cls.obj not in FILES:
        raise Break("unsupported type", type=cls.obj.__name__)
    return vm.new(cls.obj, cls.obj())


def init(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    for_real(vm, self, "__init__", args, kwargs)
    vm.entity(self).payload = len(args) > 1 or "newline" in kwargs  # it reads and writes lines its own way
    return NONE


def next_line(vm: Machine, self: Object) -> Value:
    line = for_real(vm, self, "readline", (), {})
    if not line:
        raise vm.error(StopIteration)
    return lift(vm, line)


def itself(vm: Machine, self: Object) -> Value:
    return self


def lines(vm: Machine, self: Object) -> Iterator[Value]:
    while True:
        line = for_real(vm, self, "readline", (), {})
        if not line:
            return
        yield lift(vm, line)


def leave(vm: Machine, self: Object, *error: Value) -> Value:
    """The end of a `with` block."""
    for_real(vm, self, "close", (), {})
    return FALSE


def rebuild(emit: Emitter, entity: Entity) -> None:
    if entity.items.closed or entity.payload:
        raise Restart(entity.born - 1)
    emit.function(made_again)
    emit.const(entity.pytype)
    emit.const(entity.items.getvalue())
    emit.const(entity.items.tell())
    emit.op("CALL", (3, ()))


def made_again(cls: Any, text: Any, at: int) -> Any:
    """A file of these contents, at this place."""
    file = cls(text)
    file.seek(at)
    return file


for _cls in FILES:
    models(_cls, "__new__")(new)
    models(_cls, "__init__")(init)
    models(_cls, "__exit__")(leave)
    models(_cls, "__iter__")(itself)
    models(_cls, "__next__")(next_line)
    iterates(_cls)(lines)
    rebuilds(_cls)(rebuild)

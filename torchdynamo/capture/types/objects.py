"""object itself, exceptions, classes: what the rest inherit."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING

from torchdynamo.capture import attribute_writes, attributes
from torchdynamo.capture.heap import MISSING, Entity
from torchdynamo.capture.model import Emitter, function, is_open, models, rebuilds
from torchdynamo.capture.signals import Break
from torchdynamo.capture.source import Source
from torchdynamo.capture.value import ABSENT, NONE, Known, Object, Value, boolean
from torchdynamo.capture.wrap import constant, wrap

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine


@models(object, "__new__")
def object_new(vm: Machine, cls: Known, *args: Value, **kwargs: Value) -> Value:
    """`object.__new__(cls)`, for classes whose instances are plain."""
    real = cls.obj
    for base in real.__mro__:
        if not is_open(base) and base is not object:
            raise Break("unsupported type", type=base.__name__)
    return vm.new(real)


@models(object, "__init__")
def object_init(vm: Machine, self: Object, *args: Value, **kwargs: Value) -> Value:
    return NONE


@function(object.__getattribute__)
def getattribute(vm: Machine, obj: Value, name: Value) -> Value:
    text = vm.known(name, "name")
    found = attributes.generic_getattr(vm, vm.as_object(obj), text)
    if found is None:
        raise vm.error(AttributeError, f"{obj.pytype.__name__!r} object has no attribute {text!r}")
    return found


@function(object.__setattr__)
def setattribute(vm: Machine, obj: Value, name: Value, value: Value) -> Value:
    attribute_writes.generic_setattr(vm, vm.as_object(obj), vm.known(name, "name"), value)
    return NONE


@function(object.__delattr__)
def delattribute(vm: Machine, obj: Value, name: Value) -> Value:
    attribute_writes.generic_setattr(vm, vm.as_object(obj), vm.known(name, "name"), ABSENT)
    return NONE


@function(object.__init_subclass__)
def init_subclass(vm: Machine, *args: Value) -> Value:
    return NONE


@function(object.__eq__)
def same(vm: Machine, a: Value, b: Value) -> Value:
    return boolean(True) if vm.identical(a, b) else Known(NotImplemented)


@models(BaseException, "__new__")
def exception_new(vm: Machine, cls: Known, *args: Value, **kwargs: Value) -> Value:
    return vm.new(cls.obj, list(args))


@models(BaseException, "__init__")
def exception_init(vm: Machine, self: Object, *args: Value, **kwargs: Value) -> Value:
    vm.entity(self).items = list(args)
    return NONE


@models(BaseException, ".args")
def exception_args(vm: Machine, self: Object) -> Value:
    return vm.make_tuple(args_of(vm, self))


def args_of(vm: Machine, self: Object) -> list[Value]:
    """What the exception was made with."""
    entity = vm.entity(self)
    if entity.items is None and entity.real is not MISSING:
        assert entity.source is not None
        entity.items = list(vm.iterate(wrap(vm, entity.real.args, Source("attr", entity.source, "args"))))
    return list(entity.items or ())


@models(types.TracebackType, "__getattribute__")
def traceback_getattr(vm: Machine, self: Object, name: str) -> Value:
    """It may be passed around; what it says is eager Python's to tell."""
    raise Break("unsupported attribute", name=name, type="traceback")


@models(BaseException, ".__traceback__")
def exception_traceback(vm: Machine, self: Object) -> Value:
    return vm.new(types.TracebackType)


HELD = ("__traceback__", "__context__", "__suppress_context__")


@models(BaseException, "__setattr__")
def exception_setattr(vm: Machine, self: Object, name: Known, value: Value) -> Value:
    """Where it passed is nothing a graph could keep: an exception that leaves the frame is raised by eager Python."""
    if name.obj == "args":
        vm.entity(self).items = list(vm.iterate(value))
    elif name.obj not in HELD:
        attribute_writes.generic_setattr(vm, self, name.obj, value)
    return NONE


@models(KeyError, "__str__")
def key_error_str(vm: Machine, self: Object) -> Value:
    """One key is shown as it is written."""
    args = args_of(vm, self)
    return vm.call(Known(repr), args, {}) if len(args) == 1 else exception_str(vm, self)


@models(BaseException, "__str__")
def exception_str(vm: Machine, self: Object) -> Value:
    args = args_of(vm, self)
    if len(args) == 1:
        return vm.call(Known(str), args, {})
    return vm.call(Known(str), [vm.make_tuple(args)], {}) if args else Known("")


@models(BaseException, "with_traceback")
def with_traceback(vm: Machine, self: Object, traceback: Value) -> Value:
    return self


@function(sys.exc_info)
def exc_info(vm: Machine) -> Value:
    """The exception that is being handled, in this function or in one that called it."""
    handled = [exc for frame in vm.frames for exc in frame.handling]
    if not handled:
        return constant(vm, (None, None, None))
    return vm.make_tuple([Known(handled[-1].pytype), handled[-1], vm.new(types.TracebackType)])


@models(BaseException, ".__context__")
def exception_context(vm: Machine, self: Object) -> Value:
    raise Break("unsupported attribute", name="__context__", type=self.pytype.__name__)


@models(types.SimpleNamespace, "__new__")
def namespace_new(vm: Machine, cls: Known, *args: Value, **kwargs: Value) -> Value:
    return vm.new(cls.obj)


@models(types.SimpleNamespace, "__init__")
def namespace_init(vm: Machine, self: Object, *args: Value, **kwargs: Value) -> Value:
    if args:
        raise Break("unsupported type", type="SimpleNamespace")
    vm.entity(self).attrs.update(kwargs)
    return NONE


@rebuilds(types.SimpleNamespace)
def rebuild_namespace(emit: Emitter, entity: Entity) -> None:
    """Empty, then filled. A subclass may have a `__setattr__`, which has run: codegen fills it past that."""
    emit.function(types.SimpleNamespace.__new__)
    emit.const(entity.pytype)
    emit.op("CALL", (1, ()))
    if entity.pytype is types.SimpleNamespace:
        emit.keep(entity)  # before its contents, which may lead back to it
        for name, value in entity.attrs.items():
            if value is not ABSENT:
                emit.op("COPY", 1)
                emit.value(value)
                emit.op("SWAP", 2)
                emit.op("STORE_ATTR", name)

"""object itself, exceptions, classes: what the rest inherit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchdynamo.capture import attributes
from torchdynamo.capture.model import function, models
from torchdynamo.capture.signals import Break
from torchdynamo.capture.value import ABSENT, NONE, Known, Object, Value, boolean

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine


@models(object, "__new__")
def object_new(vm: Machine, cls: Known, *args: Value, **kwargs: Value) -> Value:
    """`object.__new__(cls)`, for classes whose instances are plain."""
    real = cls.obj
    for base in real.__mro__:
        if not base.__flags__ & attributes.HEAP_TYPE and base is not object:
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
    attributes.generic_setattr(vm, vm.as_object(obj), vm.known(name, "name"), value)
    return NONE


@function(object.__delattr__)
def delattribute(vm: Machine, obj: Value, name: Value) -> Value:
    attributes.generic_setattr(vm, vm.as_object(obj), vm.known(name, "name"), ABSENT)
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
    return vm.make_tuple(list(vm.entity(self).items or ()))


@models(BaseException, "__str__")
def exception_str(vm: Machine, self: Object) -> Value:
    args = list(vm.entity(self).items or ())
    if len(args) == 1:
        return vm.call(Known(str), args, {})
    return vm.call(Known(str), [vm.make_tuple(args)], {}) if args else Known("")


@models(BaseException, "with_traceback")
def with_traceback(vm: Machine, self: Object, traceback: Value) -> Value:
    return self

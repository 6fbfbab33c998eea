"""object itself, exceptions, classes: what the rest inherit."""

from __future__ import annotations

import types

from torchdynamo._native import type_name
from torchdynamo.capture.vm import attribute_writes, attributes, finalizers, lookup
from torchdynamo.capture.vm.emitted_calls import push_call
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, function, models, rebuilds
from torchdynamo.capture.vm.operators import inverting
from torchdynamo.core.signals import Break
from torchdynamo.core.value import ABSENT, NONE, Known, Object, Value, boolean


@models(object, "__new__")
def object_new(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    """Model `object.__new__(cls)`, for classes whose instances are plain."""
    real = cls.obj
    if cls.__class__ is not Known or not lookup.is_class(real):
        raise vm.error(TypeError, "object.__new__(X): X is not a type object")
    for base in real.__mro__:
        if not lookup.written_in_python(base):
            raise Break("unsupported type", type=base.__name__)
    if args or kwargs:
        check_arguments(vm, real)
    made = vm.new(real)
    finalizers.note(vm, made)
    return made


def check_arguments(vm: Machine, cls: type) -> None:
    """Raise TypeError for arguments of `object.__new__`, unless the class has its own `__init__` and no `__new__`."""
    lookup.guard_plain_maker(vm, cls)
    if lookup.guarded_lookup(vm, cls, "__new__") is not object.__dict__["__new__"]:
        raise vm.error(TypeError, "object.__new__() takes exactly one argument (the type to instantiate)")
    if lookup.guarded_lookup(vm, cls, "__init__") is object.__dict__["__init__"]:
        raise vm.error(TypeError, f"{type_name(cls)}() takes no arguments")


@models(object, "__init__")
def object_init(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    """Model `object.__init__`, which takes arguments only if the class has a `__new__` and no `__init__` of its own."""
    if args or kwargs:
        cls = self.pytype
        if lookup.guarded_lookup(vm, cls, "__init__") is not object.__dict__["__init__"]:
            raise vm.error(TypeError, "object.__init__() takes exactly one argument (the instance to initialize)")
        if lookup.guarded_lookup(vm, cls, "__new__") is object.__dict__["__new__"]:
            raise vm.error(TypeError, f"{type_name(cls)}() takes no arguments")
    return NONE


@function(object.__getattribute__)
def getattribute(vm: Machine, obj: Value, name: Value) -> Value:
    text = vm.known(name, "name")
    found = attributes.generic_getattr(vm, vm.as_object(obj), text)
    if found is None:
        raise vm.error(AttributeError, f"{type_name(obj.pytype)!r} object has no attribute {text!r}")
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


@models(types.SimpleNamespace, "__new__")
def namespace_new(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    return vm.new(cls.obj)


@models(types.SimpleNamespace, "__init__")
def namespace_init(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    if args:
        raise Break("unsupported type", type="SimpleNamespace")
    vm.effects.write_all(vm.entity(self), kwargs)
    return NONE


@models(types.SimpleNamespace, "__eq__")
def same_namespace(vm: Machine, self: Object, other: Value) -> Value:
    """Return whether two namespaces have the same attributes with equal values."""
    if not issubclass(other.pytype, types.SimpleNamespace):
        return Known(NotImplemented)
    return vm.binary("==", vm.getattr(self, "__dict__"), vm.getattr(other, "__dict__"))


models(types.SimpleNamespace, "__ne__")(inverting(same_namespace))


@rebuilds(types.SimpleNamespace)
def rebuild_namespace(emit: Emitter, entity: Entity) -> None:
    """Materialize a namespace: empty, then filled.

    A subclass may have a `__setattr__`, which has run: codegen fills it without calling that.
    """
    push_call(emit, types.SimpleNamespace.__new__, entity.pytype)
    if entity.pytype is types.SimpleNamespace:
        emit.keep(entity)  # before its contents, which may lead back to it
        emit.fields(entity.attrs)

"""Read class attributes as descriptors: functions bind, properties are asked, the rest is returned as it is."""

from __future__ import annotations

import types
import weakref
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.vm import model
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.lookup import INSTANCE_METHOD, PLAIN_METHODS, getter_of, guarded_lookup
from torchdynamo.capture.vm.receiver_checks import refused_access
from torchdynamo.capture.vm.wrap import class_attribute, lift, wrap
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import ABSENT, NONE, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def data_descriptor(vm: Machine, obj: Object, cls: type, name: str, found: Any) -> Value | None:
    """Return what a data descriptor gives for an object: a property, slot, field in C, or one of the user's."""
    kind = type(found)
    if is_property(vm, found):
        return read_property(vm, obj, cls, name, found)
    if kind in C_FIELDS:
        entity = vm.entity(obj)
        if name == "__dict__":
            return vm.instance_dict(obj)
        if name == "__class__":
            return lift(vm, cls)
        value = entity.attrs.get(name)
        if value is not None:
            return None if value is ABSENT else value
        if entity.real is MISSING or entity.source is None:
            if kind is types.MemberDescriptorType:
                return None
            if name == "__weakref__" and entity.real is MISSING and not refers_weakly(vm):
                return NONE
            raise Break("unsupported attribute", name=name, type=cls.__name__)
        try:
            real = found.__get__(entity.real, cls)
        except AttributeError:
            if kind is not types.MemberDescriptorType:
                raise Break("unsupported attribute", name=name, type=cls.__name__) from None
            vm.guard(Source("attr", entity.source, name), "UNBOUND")
            return None
        except Exception:  # what a getter in C raises, Python raises again
            raise Break("unsupported attribute", name=name, type=cls.__name__) from None
        return wrap(vm, real, Source("attr", entity.source, name))
    return call_get(vm, obj, cls, name, found, cls)


def refers_weakly(vm: Machine) -> bool:
    """Return whether the frame has made any weak reference."""
    return any(issubclass(each.pytype, weakref.ReferenceType) and each.fresh for each in vm.heap.entities)


def is_property(vm: Machine, found: Any) -> bool:
    """Return whether an attribute of a class is a property, or of a subclass that is read as one."""
    kind = type(found)
    return kind is property or (isinstance(found, property) and guarded_lookup(vm, kind, "__get__") is PROPERTY_GET)


PROPERTY_GET = property.__dict__["__get__"]


def read_property(vm: Machine, obj: Value, cls: type, name: str, found: Any) -> Value:
    """Call the getter of a property. Raises the program's AttributeError if it has none."""
    getter = getter_of(vm, cls, name, found)
    if getter.obj is None:
        raise refused_access(vm, found, cls, "__get__")
    return vm.call(getter, [obj], {})


def call_get(vm: Machine, obj: Value, cls: type, name: str, found: Any, owner: type) -> Value:
    """Call the `__get__` that the user wrote for a descriptor, an attribute of `cls`. Raises Break for one in C."""
    kind = type(found)
    method = guarded_lookup(vm, kind, "__get__")
    if type(method) is not types.FunctionType:
        raise Break("unsupported attribute", name=name, type=cls.__name__)
    descriptor = wrap(vm, found, class_attribute(vm, cls, name))
    return vm.call(Known(method, class_attribute(vm, kind, "__get__")), [descriptor, obj, Known(owner)], {})


def bind_to_class(vm: Machine, owner: type, name: str, found: Any, source: Source) -> Value | None:
    """Return a static or class method as `owner` and its instances see it; None of any other attribute."""
    kind = type(found)
    if kind is staticmethod:
        return wrap(vm, found.__func__, Source("attr", source, "__func__"))
    if kind is classmethod:
        return vm.bound_method(Known(owner), wrap(vm, found.__func__, Source("attr", source, "__func__")), name)
    return Known(found.__get__(None, owner)) if kind is types.ClassMethodDescriptorType else None


def describe(vm: Machine, obj: Value, cls: type, name: str, found: Any, owner: type | None = None) -> Value:
    """Return a class attribute as an instance of `owner` sees it: functions bind, descriptors are asked."""
    owner = owner or cls
    kind = type(found)
    source = class_attribute(vm, cls, name)
    if kind in PLAIN_METHODS:
        return vm.bound_method(obj, Known(found, source), name)
    if kind is INSTANCE_METHOD:
        return vm.bound_method(obj, Known(found.__func__), name)
    bound = bind_to_class(vm, owner, name, found, source)
    if bound is not None:
        return bound
    if kind is types.BuiltinFunctionType:
        return Known(found, source)
    if is_property(vm, found):
        return read_property(vm, obj, cls, name, found)
    method = guarded_lookup(vm, kind, "__get__")
    if method is MISSING or issubclass(kind, type):
        return wrap(vm, found, source)
    row = model.MODELS.get((kind, "__get__"))
    if row is not None:
        return row(vm, wrap(vm, found, source), obj, Known(owner))
    return call_get(vm, obj, cls, name, found, owner)


# What a class shows as it is, without a place to guard.
C_FIELDS = (types.MemberDescriptorType, types.GetSetDescriptorType)
ON_CLASS = (*PLAIN_METHODS, property, *C_FIELDS, types.BuiltinFunctionType)


def describe_on_class(vm: Machine, owner: type, cls: type, name: str, found: Any) -> Value:
    """Return an attribute of `cls` as the class `owner`, which inherits it, sees it."""
    source = class_attribute(vm, cls, name)
    kind = type(found)
    if kind is types.FunctionType:
        return Known(found, source)
    bound = bind_to_class(vm, owner, name, found, source)
    if bound is not None:
        return bound
    if kind in ON_CLASS:
        return Known(found)
    method = guarded_lookup(vm, kind, "__get__")
    if method is MISSING or issubclass(kind, type) or is_property(vm, found):
        return wrap(vm, found, source)
    return call_get(vm, NONE, cls, name, found, owner)

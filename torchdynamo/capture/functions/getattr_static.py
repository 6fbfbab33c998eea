"""inspect.getattr_static: what an object or its classes hold under a name, nothing of the user's being asked."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.vm import namespaces
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.lookup import guarded_lookup
from torchdynamo.capture.vm.model import function, is_open
from torchdynamo.capture.vm.wrap import class_attribute, lift, wrap
from torchdynamo.core.signals import Break
from torchdynamo.core.value import Known, Object, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


@function(inspect.getattr_static)
def getattr_static(vm: Machine, obj: Value, attr: Value, default: Value | None = None) -> Value:
    name: str = vm.known(attr, "name")
    cls = obj.obj if obj.__class__ is Known and isinstance(obj.obj, type) else None
    found = on_instance(vm, obj, name) if cls is None else on_class(vm, cls, name)
    if found is not None:
        return found
    if default is None:
        raise vm.error(AttributeError, name)
    return default


def on_class(vm: Machine, cls: type, name: str) -> Value | None:
    """The class and its bases, then those of its metaclass."""
    for start in (cls, type(cls)):
        found = guarded_lookup(vm, start, name)
        if found is not MISSING:
            return value_of(vm, start, name, found)
    return None


def on_instance(vm: Machine, obj: Value, name: str) -> Value | None:
    """What the instance holds, unless its class has a descriptor that takes writes."""
    found = guarded_lookup(vm, obj.pytype, name)
    data = found is not MISSING and hasattr(type(found), "__get__")
    if data and (hasattr(type(found), "__set__") or hasattr(type(found), "__delete__")):
        return value_of(vm, obj.pytype, name, found)
    own = held(vm, obj, name)
    if own is not None:
        return own
    return None if found is MISSING else value_of(vm, obj.pytype, name, found)


def held(vm: Machine, obj: Value, name: str) -> Value | None:
    if obj.__class__ is Object:
        return namespaces.read_instance(vm, vm.entity(obj), name)
    if obj.__class__ is TensorNode:
        return namespaces.read_tensor(vm, obj, name)
    if obj.__class__ is not Known or hasattr(obj.obj, "__dict__"):
        raise Break("unknown call", name="inspect.getattr_static")
    return None


def value_of(vm: Machine, cls: type, name: str, found: Any) -> Value:
    """The attribute of a class as it lies there."""
    if is_open(cls):
        return wrap(vm, found, class_attribute(vm, cls, name))
    return lift(vm, found)

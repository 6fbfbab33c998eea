"""`obj.name = value` and `del obj.name`: Python's own rules, over values."""

from __future__ import annotations

import collections
import types
from typing import TYPE_CHECKING, Any

from torchdynamo._native import type_name
from torchdynamo.capture.vm import finalizers, model, namespaces
from torchdynamo.capture.vm.descriptors import data_descriptor
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.lookup import PLAIN_METHODS, guarded_lookup
from torchdynamo.capture.vm.receiver_checks import refused_access
from torchdynamo.capture.vm.wrap import class_attribute, wrap
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import ABSENT, Known, Object, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def setattr_(vm: Machine, obj: Value, name: str, value: Value) -> None:
    """Execute `obj.name = value`; ABSENT as the value deletes."""
    if obj.__class__ is TensorNode:
        vm.tensor_setattr(obj, name, value)
        return
    if obj.__class__ is Known:
        namespaces.write_attribute(vm, obj, name, value)
        return
    if obj.__class__ is not Object:
        raise Break("unsupported attribute write", name=name, type=obj.pytype.__name__)
    cls = obj.pytype
    slot, given = ("__delattr__", []) if value is ABSENT else ("__setattr__", [value])
    guarded_lookup(vm, cls, slot)
    own = model.find_slot(cls, slot)
    if own[0] == "model":
        own[1](vm, obj, Known(name), *given)
    elif own[1][0] is not object and is_method(own[1][1], slot):
        vm.call(Known(own[1][1], class_attribute(vm, cls, slot)), [obj, Known(name), *given], {})
    elif is_plain(own, slot) or own[1][1] is object.__delattr__:
        generic_setattr(vm, obj, name, value)
    else:
        raise Break("unsupported attribute write", name=name, type=cls.__name__)


def delattr_(vm: Machine, obj: Value, name: str) -> None:
    """Execute `del obj.name`."""
    setattr_(vm, obj, name, ABSENT)


def is_method(found: Any, name: str) -> bool:
    """Return whether a write calls this: a function of the user's, or another method of C's (`dict.__setitem__`)."""
    return type(found) is types.FunctionType or (type(found) in PLAIN_METHODS and found.__name__ != name)


def is_plain(slot: model.Slot, name: str) -> bool:
    """Return whether a slot holds the type's own method in C, not another's under that name."""
    if slot[0] != "python":
        return True
    owner, found = slot[1]
    return type(found) is types.WrapperDescriptorType and found.__name__ == name and found.__objclass__ is owner


def generic_setattr(vm: Machine, obj: Object, name: str, value: Value) -> None:
    """Execute `object.__setattr__`; ABSENT as the value deletes."""
    cls = obj.pytype
    found = guarded_lookup(vm, cls, name)
    kind = type(found)
    if found is not MISSING and is_data_descriptor(kind) and kind is not types.MemberDescriptorType:
        call_setter(vm, obj, name, found, [] if value is ABSENT else [value])
        return
    if is_field(found) and not is_writable(found):
        if any(issubclass(found.__objclass__, cls) for cls in READONLY):
            raise vm.error(AttributeError, "readonly attribute")
        raise Break("unsupported attribute write", name=name, type=cls.__name__)
    entity = vm.entity(obj)
    if kind is types.MemberDescriptorType:
        if value is ABSENT and data_descriptor(vm, obj, cls, name, found) is None:
            raise vm.error(AttributeError, name)
        if entity.source is not None and entity.real is not MISSING and name not in entity.attrs:
            finalizers.let_go_at(vm, entity.source, entity.real, name)
        if value is ABSENT and not existed(vm, entity, name, found):
            vm.effects.drop(entity, name)
        else:
            vm.effects.write(entity, name, value)
    elif namespaces.can_hold(cls) and (value is not ABSENT or namespaces.read_instance(vm, entity, name) is not None):
        namespaces.write_instance(vm, entity, name, value)
    elif value is ABSENT:
        raise not_there_to_delete(vm, cls, name)
    else:
        raise vm.error(AttributeError, f"{type_name(cls)!r} object has no attribute {name!r}")


def not_there_to_delete(vm: Machine, cls: type, name: str) -> Exception:
    """Return the error of deleting an attribute that an object of this class does not have."""
    return vm.error(AttributeError, REFUSED_DELETION.replace("Refused", type_name(cls)).replace("gone", name))


def refused_deletion() -> str:
    """Return the words in which this version of Python refuses to delete an attribute that is not there."""
    try:
        del type("Refused", (), {})().gone
    except AttributeError as error:
        return str(error)
    raise AssertionError("deleted")


REFUSED_DELETION = refused_deletion()


def is_data_descriptor(kind: type) -> bool:
    """Return whether descriptors of this type have `__set__` or `__delete__`."""
    return hasattr(kind, "__set__") or hasattr(kind, "__delete__")


def call_setter(vm: Machine, obj: Object, name: str, found: Any, value: list[Value]) -> None:
    """Call the setter of a property, or `__set__` of a descriptor; without a value, the deleter or `__delete__`."""
    cls, kind = obj.pytype, type(found)
    where = class_attribute(vm, cls, name)
    if kind is property:
        part, how = ("fset", "__set__") if value else ("fdel", "__delete__")
        fn = getattr(found, part)
        if fn is None:
            raise refused_access(vm, found, cls, how)
        vm.call(Known(fn, Source("attr", where, part)), [obj, *value], {})
        return
    slot = "__set__" if value else "__delete__"
    method = guarded_lookup(vm, kind, slot)
    if type(method) is not types.FunctionType:
        raise Break("unsupported attribute write", name=name, type=cls.__name__)
    vm.call(Known(method, class_attribute(vm, kind, slot)), [wrap(vm, found, where), obj, *value], {})


# Classes of C whose fields can be written, but those: of others it cannot be told.
READONLY: dict[type, frozenset[str]] = {
    types.FunctionType: frozenset({"__closure__", "__globals__", "__builtins__"}),
    BaseException: frozenset({"message", "exceptions"}),
    collections.defaultdict: frozenset(),
}


def is_field(found: Any) -> bool:
    """Return whether a class attribute is a field of a struct in C, not a slot of the user's."""
    return type(found) is types.MemberDescriptorType and "__slots__" not in vars(found.__objclass__)


def is_writable(field: types.MemberDescriptorType) -> bool:
    """Return whether a field of a struct in C is known to be writable, which the field itself does not say."""
    return any(issubclass(field.__objclass__, cls) and field.__name__ not in no for cls, no in READONLY.items())


def existed(vm: Machine, entity: Entity, name: str, found: types.MemberDescriptorType) -> bool:
    """Return whether a slot held something at entry, and guard that."""
    if entity.real is MISSING or entity.source is None:
        return False
    place = Source("attr", entity.source, name)
    try:
        held = found.__get__(entity.real, type(entity.real))
    except AttributeError:
        vm.guard(place, "UNBOUND")
        return False
    if place not in vm.by_source:
        vm.guard(place, "TYPE_MATCH", type(held))
    return True

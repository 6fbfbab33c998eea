"""`obj.name`: Python's own rules, over values."""

from __future__ import annotations

import enum
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchdynamo._native import type_name
from torchdynamo.capture.torch.symbols import settled
from torchdynamo.capture.vm import dict_aliases, model, namespaces
from torchdynamo.capture.vm.descriptors import data_descriptor, describe, describe_on_class
from torchdynamo.capture.vm.enums import member_getattr
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.lookup import (
    INSTANCE_METHOD,
    PLAIN_METHODS,
    class_lookup,
    getter_of,
    guard_metaclass,
    guarded_lookup,
    guarded_own,
    guarded_slot,
    instance_dict,
    is_class,
    is_descriptor,
    modelled_attribute,
)
from torchdynamo.capture.vm.wrap import CONSTANTS, cannot_look, class_attribute, class_source, lift, wrap
from torchdynamo.core.policy import PURE_TYPES
from torchdynamo.core.signals import Break, Raised
from torchdynamo.core.source import Source, instance_attr
from torchdynamo.core.value import ABSENT, Known, Object, Symbol, TensorNode, Value, is_none
from torchdynamo.graph import patches
from torchdynamo.graph.opaque_values import is_opaque_value
from torchdynamo.graph.wrappers import getter

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def getattr_(vm: Machine, obj: Value, name: str) -> Value:
    """Return `obj.name`. An AttributeError that does not say so gets the object and the name."""
    try:
        if obj.__class__ is Object:
            return object_getattr(vm, obj, name)
        if obj.__class__ is Known:
            return known_getattr(vm, obj, name)
        if obj.__class__ is TensorNode:
            return vm.tensor_getattr(obj, name)
        if obj.__class__ is Symbol:
            return known_getattr(vm, settled(vm, obj), name)
    except Raised as raised:
        if issubclass(raised.value.pytype, AttributeError):
            entity = vm.entity(raised.value)
            if is_none(entity.attrs.get("name", ABSENT)) and is_none(entity.attrs.get("obj", ABSENT)):
                vm.effects.write_all(entity, {"name": Known(name), "obj": obj})
        raise
    raise cannot_look(obj)


def object_getattr(vm: Machine, obj: Object, name: str) -> Value:
    """Return an attribute of an object in the heap: by its class's `__getattribute__`, then its `__getattr__`."""
    cls = obj.pytype
    own = guarded_slot(vm, cls, "__getattribute__")
    if own[0] == "model":
        return own[1](vm, obj, name)
    if own[1][0] is not object and type(own[1][1]) is types.FunctionType:
        getter = Known(own[1][1], class_attribute(vm, cls, "__getattribute__"))
        return looked_up(vm, obj, name, lambda: vm.call(getter, [obj, Known(name)], {}))
    return plain_getattr(vm, obj, name)


def plain_getattr(vm: Machine, obj: Object, name: str) -> Value:
    """Return an attribute by Python's own rules; where there is none, what `__getattr__` of the class returns."""
    return looked_up(vm, obj, name, lambda: generic_getattr(vm, obj, name))


def looked_up(vm: Machine, obj: Object, name: str, look: Callable[[], Value | None]) -> Value:
    """Return what `look` finds; if that is nothing, or an AttributeError, what the class's `__getattr__` returns."""
    cls = obj.pytype
    value, failed = or_error(look)
    if value is not None:
        return value
    vm.not_found.add((cls, name))
    fallback = guarded_slot(vm, cls, "__getattr__")
    if fallback[0] == "model":
        return fallback[1](vm, obj, name)
    if fallback[0] == "python":
        return vm.call(Known(fallback[1][1], class_attribute(vm, cls, "__getattr__")), [obj, Known(name)], {})
    raise failed or vm.error(AttributeError, f"{type_name(cls)!r} object has no attribute {name!r}")


def or_error(look: Callable[[], Value | None]) -> tuple[Value | None, Raised | None]:
    """Return what `look` finds, and the AttributeError that it raises."""
    try:
        return look(), None
    except Raised as raised:
        if not issubclass(raised.value.pytype, AttributeError):
            raise
        return None, raised


def generic_getattr(vm: Machine, obj: Object, name: str) -> Value | None:
    """Execute `object.__getattribute__`. Returns None where it would raise AttributeError."""
    cls = obj.pytype
    row = modelled_attribute(vm, cls, name)
    if row is not None:
        return row(vm, obj)
    entity = vm.entity(obj)
    if vm.effects.wrote_classes:
        written = namespaces.written_on_class(vm, cls, name)
        if written is not None:
            return namespaces.read_instance(vm, entity, name) or written
    found = guarded_lookup(vm, cls, name)
    if found is not MISSING and type(found) is not types.FunctionType and is_descriptor(vm, found, "__get__"):
        if issubclass(cls, tuple):
            item = model.FIELD[tuple](vm, obj, name, found)
            if item is not None:
                return item
        if is_descriptor(vm, found, "__set__"):
            return data_descriptor(vm, obj, cls, name, found)
    value = namespaces.read_instance(vm, entity, name)
    if value is not None:
        return value
    if found is MISSING:
        return None
    return describe(vm, obj, cls, name, found)


def known_getattr(vm: Machine, obj: Known, name: str) -> Value:
    """Return an attribute of a module, class, function or constant."""
    real, source = obj.obj, obj.source
    cls = type(real)
    row = model.MODELS.get((cls, "." + name))
    if row is not None:
        return row(vm, obj)
    if cls is types.ModuleType or isinstance(real, types.ModuleType):
        return module_getattr(vm, real, source, name)
    if is_class(real):
        return class_getattr(vm, real, name)
    if isinstance(real, enum.Enum):
        return member_getattr(vm, obj, name)
    if cls in CONSTANTS or cls in PURE_TYPES:
        found = class_lookup(cls, name)
        if type(found) in PLAIN_METHODS:
            return vm.bound_method(obj, Known(found), name)
        try:
            return lift(vm, getattr(real, name))
        except AttributeError as error:
            raise vm.error(AttributeError, *error.args) from None
    if cls is types.FunctionType and name not in FUNCTION_FIELDS:
        value = namespaces.read_function(vm, obj, name)
        if value is not None:
            return value
    written = class_lookup(cls, name)
    if is_opaque_value(cls) and type(written) not in PLAIN_METHODS:
        return read_opaque(vm, obj, name, written)
    if cls is types.GetSetDescriptorType and name in ("__get__", "__set__"):  # torch hands these on, as functions
        return Known(getattr(real, name))
    if type(written) in PLAIN_METHODS and name not in getattr(real, "__dict__", ()):
        return vm.bound_method(obj, Known(written), name)
    if type(written) is property and written.fget is not None:
        return vm.call(getter_of(vm, cls, name, written), [obj], {})
    try:
        found = getattr(real, name)
    except AttributeError as error:
        raise vm.error(AttributeError, *error.args) from None
    if source is None or (type(found) in CONSTANTS and cls is not types.FunctionType):
        return lift(vm, found)
    kept = written is MISSING and (instance_dict(real) or {}).get(name, MISSING) is found  # by a `__getattr__`, maybe
    return wrap(vm, found, instance_attr(source, name) if kept else Source("attr", source, name))


def read_opaque(vm: Machine, obj: Known, name: str, written: Any) -> Value:
    """Return an attribute of one of torch's opaque values: a method in C++, or what never changes."""
    if type(written) is INSTANCE_METHOD:
        return vm.bound_method(obj, Known(written), name)
    try:
        return lift(vm, getattr(obj.obj, name))
    except AttributeError as error:
        raise vm.error(AttributeError, *error.args) from None


FUNCTION_FIELDS = frozenset({"__code__", "__defaults__", "__kwdefaults__", "__closure__", "__globals__"})


def module_getattr(vm: Machine, module: types.ModuleType, source: Source | None, name: str) -> Value:
    """Return a name in a module. Its `__getattr__`, if any, is inlined; torch's is run, and its constants guarded."""
    own = module.__dict__
    if own is None or type(own.get("__name__")) is not str:  # made by `__new__` alone, or renamed
        raise Break("unsupported attribute", name=name, type="module")
    if source is None or sys.modules.get(own["__name__"]) is module:
        source = Source("module", None, own["__name__"])
    vm.guard(source, "TYPE_MATCH", type(module))
    dict_aliases.note_lookup(vm, own, Source("dict", source))
    if name == "__dict__":
        return wrap(vm, own, Source("dict", source))
    if vm.effects.wrote_names:
        written = vm.effects.written(own, name)
        if written is not None:
            return written
    found = guarded_lookup(vm, type(module), name)
    if is_written(found) and hasattr(type(found), "__set__"):
        return describe(vm, Known(module, source), type(module), name, found)
    value = namespaces.at_entry(vm, own, Source("dict", source), name)
    if value is not None:
        return value
    if is_written(found):
        return describe(vm, Known(module, source), type(module), name, found)
    hook = own.get("__getattr__")
    if type(hook) is types.FunctionType and not hook.__module__.startswith("torch"):
        return vm.call(wrap(vm, hook, instance_attr(source, "__getattr__")), [Known(name)], {})
    if hook is None:
        vm.guard(Source("dict", source), "NO_KEY", "__getattr__")
    try:
        given = patches.of_program(module, name, getattr(module, name))
    except AttributeError as error:
        raise vm.error(AttributeError, *error.args) from None
    if own.get(name, MISSING) is given:  # as `torch.ops` keeps a namespace of operators once somebody asks for it
        return wrap(vm, given, instance_attr(source, name))
    of_class = guarded_lookup(vm, type(module), "__getattr__")
    if hook is None and type(of_class) is types.FunctionType and of_class.__module__.partition(".")[0] != "torch":
        return vm.call(
            Known(of_class, class_attribute(vm, type(module), "__getattr__")), [Known(module, source), Known(name)], {}
        )
    if str(getattr(hook or of_class, "__module__", "torch")).partition(".")[0] != "torch":
        vm.of_process["what a module has answered that makes its names when they are asked for"] = None
    if hook is None and type(given) in CONSTANTS:  # torch's modules of settings serve them so
        return wrap(vm, given, Source("asked", source, getter(name)))
    return lift(vm, given)


def is_written(found: Any) -> bool:
    """Return whether a method or descriptor is written in Python, as subclasses of the module type have them."""
    if type(found) in (types.FunctionType, property):
        return True
    return type(class_lookup(type(found), "__get__")) is types.FunctionType


def class_fact(vm: Machine, cls: type, name: str) -> Value:
    """Return the name, bases or another fact of a class. It is guarded if the class can be changed."""
    guarded_lookup(vm, cls, name)  # which tells of what lies in the class's own dictionary
    try:
        fact = getattr(cls, name)
    except AttributeError as error:
        raise vm.error(AttributeError, *error.args) from None
    if cls.__flags__ & (HEAP_TYPE | IMMUTABLE_TYPE) == HEAP_TYPE:
        source = Source("attr", class_source(cls), name)
        if isinstance(fact, str):
            vm.guard(source, "EQUALS_MATCH", fact)
        elif isinstance(fact, tuple):
            vm.guard(source, "LENGTH", len(fact))
            for index, item in enumerate(fact):
                vm.guard(Source("item", source, index), "FUNCTION_MATCH", item)
        for held in ANNOTATIONS:
            if type(fact) is dict and cls.__dict__.get(held) is fact:
                guarded_own(vm, cls, held)
                return wrap(vm, fact, class_attribute(vm, cls, held))
    return lift(vm, fact)


ANNOTATIONS = ("__annotations__", "__annotations_cache__")
"""Under which names a class may hold its annotations; the latter once they were asked for."""


HEAP_TYPE, IMMUTABLE_TYPE = 1 << 9, 1 << 8  # bits of a class's __flags__
PLAIN_DICT = type.__dict__["__dict__"]


def class_getattr(vm: Machine, cls: type, name: str) -> Value:
    """Return an attribute of a class: what its metaclass finds, or the metaclass's `__getattr__` returns."""
    meta = type(cls)
    guard_metaclass(vm, cls)
    asked = guarded_lookup(vm, meta, "__getattribute__")
    if type(asked) is types.FunctionType:
        getter = Known(asked, class_attribute(vm, meta, "__getattribute__"))
        value, failed = or_error(lambda: vm.call(getter, [Known(cls), Known(name)], {}))
    else:
        value, failed = or_error(lambda: plain_class_getattr(vm, cls, name))
    if value is not None:
        return value
    hook = guarded_lookup(vm, meta, "__getattr__")
    if hook is not MISSING and type(hook) is types.FunctionType:
        getter = Known(hook, class_attribute(vm, meta, "__getattr__"))
        return vm.call(getter, [Known(cls), Known(name)], {})
    raise failed or vm.error(AttributeError, f"type object {type_name(cls)!r} has no attribute {name!r}")


def plain_class_getattr(vm: Machine, cls: type, name: str) -> Value | None:
    """Return an attribute of a class: from data descriptors of the metaclass, then the MRO, then the metaclass.

    None if there is none.
    """
    meta = type(cls)
    above = guarded_lookup(vm, meta, name)
    if above is not MISSING and type(above) is not types.FunctionType and hasattr(type(above), "__set__"):
        if above is PLAIN_DICT:
            return model.CLASS_DICT[type](vm, cls)
        if type(above) is property:
            return vm.call(getter_of(vm, meta, name, above), [Known(cls)], {})
        return class_fact(vm, cls, name)
    if vm.effects.wrote_classes:
        written = namespaces.written_on_class(vm, cls, name)
        if written is not None:
            return written
    found = guarded_lookup(vm, cls, name)
    if found is not MISSING:
        return describe_on_class(vm, cls, cls, name, found)
    return None if above is MISSING else describe(vm, Known(cls), meta, name, above)


def has_attribute(vm: Machine, obj: Value, name: str) -> Value | None:
    """Return an attribute, or None where the program would see AttributeError."""
    try:
        return getattr_(vm, obj, name)
    except Raised as raised:
        if issubclass(raised.value.pytype, AttributeError):
            return None
        raise

"""Choose the contents of the real class that a capture makes for a class statement.

An object that it must not hold (a cell, an object of the user, a tensor) is stood for by one that the heap knows.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from typing import Any

from torchdynamo.bytecode.qualnames import qualname_of
from torchdynamo.capture.frame import MadeFunction
from torchdynamo.capture.types.wrappers import WRAPPERS, given
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.lookup import class_lookup
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.namespaces import DESCRIPTOR
from torchdynamo.capture.vm.remade_classes import StandIn
from torchdynamo.core.signals import Break
from torchdynamo.core.value import Known, Object, TensorNode, Value

PYTHONS = ("builtins", "abc", "enum", "typing")  # whose metaclasses and `__init_subclass__` only make the class
ATTRIBUTES = (functools.cached_property, dataclasses.Field, dataclasses.InitVar, enum.auto)  # made by attributes alone
MARKERS = ("dataclasses", "enum")  # whose own objects say that something is missing
ASKED = (*DESCRIPTOR, "__set_name__")  # what classes ask of what lies in them


def real_of(vm: Machine, value: Value) -> Any:
    """Return the object that stands in a real class for a value; read from the class, it is that value again."""
    if value.__class__ is Known:
        return value.obj
    if value.__class__ is TensorNode:
        return StandIn(value)
    if value.__class__ is not Object:
        raise Break("unsupported instruction", name="class statement")
    made = vm.realized.get(value.ref)
    if made is None:
        made = vm.realized[value.ref] = make_real(vm, value)
        if value.pytype not in ATTRIBUTES:  # which learn their names when the class is made
            vm.heap.by_id[id(made)] = value
        if vm.entity(value).fresh:
            vm.inside[id(made)] = vm.step
    return made


def make_real(vm: Machine, value: Object) -> Any:
    entity, cls = vm.entity(value), value.pytype
    if not entity.fresh and (cls.__module__ in MARKERS or cls is types.MappingProxyType):
        return entity.real
    if cls is types.CellType:
        return types.CellType()
    if cls is types.FunctionType and entity.fresh:
        return real_function(vm, value)
    if entity.fresh and cls in WRAPPERS:
        return cls(*(real_of(vm, value) for value in given(cls, entity)))
    if entity.fresh and cls in ATTRIBUTES:
        plain = object.__new__(cls)
        for name, item in entity.attrs.items():
            object.__setattr__(plain, name, real_of(vm, item))
        return plain
    if entity.fresh and cls in (list, tuple, set):
        return cls(real_of(vm, item) for item in vm.iterate(value))
    if entity.fresh and cls is dict:
        return {real_of(vm, key): real_of(vm, item) for key, item in vm.dict_items(value)}
    looked_at = any(class_lookup(cls, name) is not MISSING for name in ASKED)
    if looked_at or cls.__hash__ is None or (cls.__module__ in (*PYTHONS, *MARKERS) and cls is not object):
        raise Break("unsupported instruction", name="class statement")
    return StandIn(value)


def real_function(vm: Machine, value: Object) -> types.FunctionType:
    """Return a real function of the code of one that the frame made, with cells that stand for the frame's."""
    entity = vm.entity(value)
    made = entity.payload_as(MadeFunction)
    code, space, given = made.parts.code, made.parts.globals, made.given
    parts = {name: real_of(vm, part) for name, part in given.items() if not name.startswith("annotat")}
    fn = types.FunctionType(code, space.real, code.co_name, parts.get("defaults"), parts.get("closure"))
    fn.__qualname__ = qualname_of(code)
    if "kwdefaults" in parts:
        fn.__kwdefaults__ = parts["kwdefaults"]
    if "annotate" in given:
        fn.__annotate__ = real_of(vm, given["annotate"])  # type: ignore[attr-defined, unused-ignore]
    else:
        fn.__annotations__ = real_of(vm, vm.getattr(value, "__annotations__"))
    for name, item in entity.attrs.items():
        if name != "__annotations__":
            setattr(fn, name, real_of(vm, item))
    return fn


def is_stood_for(real: Any) -> bool:
    """Return whether an attribute of a real class is not yet what it will be: an object stands in for it."""
    return isinstance(real, StandIn) or (isinstance(real, (tuple, list, set)) and any(map(is_stood_for, real)))

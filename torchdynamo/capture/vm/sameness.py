"""Decide whether two values are one object (`is`), and guard it where they existed at entry."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.torch import symbols
from torchdynamo.capture.vm import model
from torchdynamo.capture.vm.wrap import cannot_look, same_constant, same_function
from torchdynamo.core.source import Source
from torchdynamo.core.value import Known, Lazy, Object, Symbol, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def identical(vm: Machine, a: Value, b: Value) -> bool:
    """Return `a is b`, guarded where either existed at entry."""
    if a is b and a.__class__ is Symbol:
        return True
    if symbols.is_number(a) and symbols.is_number(b) and a.pytype is b.pytype:
        a, b = (symbols.settled(vm, each) if each.__class__ is Symbol else each for each in (a, b))
    if a.__class__ is Known and b.__class__ is Known:
        if type(a.obj) is type(b.obj) is types.FunctionType:
            return same_function(vm, a, b)
        return same_constant(vm, a, b)
    if a.pytype is b.pytype is int and (a.__class__ is not Object or b.__class__ is not Object or a.ref != b.ref):
        return model.IDENTICAL[int](vm, a, b)
    if a.__class__ is Object and b.__class__ is Object:
        if a.ref == b.ref:
            return True
        first, second = vm.entity(a).source, vm.entity(b).source
        if first is not None and second is not None:
            vm.guard(first, "DISTINCT", (first, second))
        return False
    if a.__class__ is TensorNode and b.__class__ is TensorNode:
        if a.fake is b.fake:
            return True
        vm.refuse_copies(a, b)
        if a.source is not None and b.source is not None:
            vm.guard(a.source, "DISTINCT", (a.source, b.source))
        return False
    if Lazy in (a.__class__, b.__class__) and a.pytype is b.pytype:
        raise cannot_look(a)
    if a.pytype is b.pytype and {a.__class__, b.__class__} == {Known, Object}:
        return is_constant_object(vm, *((a, b) if a.__class__ is Known else (b, a)))  # type: ignore[arg-type]
    return False


def is_constant_object(vm: Machine, constant: Known, value: Object) -> bool:
    """Return whether an object that existed at entry is this constant: a property is one where its class shows it."""
    entity = vm.entity(value)
    if entity.source is None:
        return False
    same: bool = entity.real is constant.obj
    if constant.source is None:
        vm.guard(entity.source, "ID_MATCH", entity.real)
    else:
        vm.guard(entity.source, *same_or_distinct(same, entity.source, constant.source))
    return same


def same_or_distinct(same: bool, first: Source, other: Source) -> tuple[str, Any]:
    """Return the kind and argument of a guard on the first of two sources, by whether they have one object."""
    return ("SAME_OBJECT", other) if same else ("DISTINCT", (first, other))

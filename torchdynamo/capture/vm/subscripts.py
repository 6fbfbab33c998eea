"""Subscripts over values: `box[key]`, read, written and deleted; of classes too."""

from __future__ import annotations

import operator
import types
from typing import TYPE_CHECKING, Any

from torchdynamo._native import type_name
from torchdynamo.capture.torch import numpy_arrays, overrides, symbols, tensor_methods, unbacked_index
from torchdynamo.capture.vm import enums, model
from torchdynamo.capture.vm.lookup import guarded_lookup, is_class
from torchdynamo.capture.vm.operators import special
from torchdynamo.capture.vm.scalar_subclasses import indexed
from torchdynamo.capture.vm.wrap import class_attribute, lift, wrap
from torchdynamo.core.source import Source
from torchdynamo.core.value import Known, Object, Symbol, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def getitem(vm: Machine, box: Value, key: Value) -> Value:
    """Return `box[key]`."""
    if key.__class__ is Symbol and box.__class__ is not TensorNode:
        key = symbols.settled(vm, key)
    if box.__class__ is TensorNode:
        key = numpy_arrays.as_index(vm, key)
        answer = overrides.handled(vm, operator.getitem, [box, key]) if vm.watching else None
        answer = answer or tensor_methods.answered(vm, box, "__getitem__", key)
        if answer is not None:
            return answer
        view, rest = unbacked_index.picked(vm, box, indexed(vm, key))
        return view if rest is None else vm.emit("call_function", operator.getitem, [view, rest], {})
    if key.__class__ is TensorNode and box.__class__ is not Object:
        return vm.emit("call_function", operator.getitem, [box, key], {})
    if box.__class__ is Known:
        obj = box.obj
        if is_class(obj):
            return class_getitem(vm, obj, key)
        return vm.run_pure(operator.getitem, [box, indexed(vm, key) if type(obj) in INDEXED else key], {})
    answer = special(vm, box, "__getitem__", key)
    if answer is None:
        raise vm.error(TypeError, f"{type_name(box.pytype)!r} object is not subscriptable")
    return answer


INDEXED = (tuple, str, bytes, range)


def class_getitem(vm: Machine, cls: Any, key: Value) -> Value:
    """Return `Cls[key]`: by `__getitem__` of the metaclass, else a generic alias."""
    above, own = guarded_lookup(vm, type(cls), "__getitem__"), guarded_lookup(vm, cls, "__class_getitem__")
    if type(above) is types.FunctionType:
        if above.__module__ not in model.LIBRARIES:
            answer: Value = vm.special(Known(cls), "__getitem__", key)
            return answer
    elif type(getattr(own, "__func__", None)) is types.FunctionType and own.__func__.__module__ not in model.LIBRARIES:
        source = Source("attr", class_attribute(vm, cls, "__class_getitem__"), "__func__")
        return vm.call(wrap(vm, own.__func__, source), [Known(cls), key], {})
    enums.guard_members(vm, cls)
    given = vm.concretely(key)
    try:
        return lift(vm, cls[given])
    except Exception as error:  # the user's expression raises
        raise vm.refused(error) from None


def setitem(vm: Machine, box: Value, key: Value, value: Value) -> None:
    """Execute `box[key] = value`."""
    if box.__class__ is TensorNode:
        key = numpy_arrays.as_index(vm, key)
        if tensor_methods.answered(vm, box, "__setitem__", key, value) is not None:
            return
        view, rest = unbacked_index.picked(vm, box, key)
        vm.emit("call_function", operator.setitem, [view, rest or Known(Ellipsis), value], {})
        return
    if special(vm, box, "__setitem__", key, value) is None:
        raise vm.error(TypeError, f"{type_name(box.pytype)!r} object does not support item assignment")


def delitem(vm: Machine, box: Value, key: Value) -> None:
    """Execute `del box[key]`."""
    if special(vm, box, "__delitem__", key) is None:
        as_sequence = hasattr(key.pytype, "__index__") and (model.is_open(box.pytype) or hasattr(box.pytype, "__len__"))
        refuses = "doesn't" if as_sequence else "does not"
        raise vm.error(TypeError, f"{type_name(box.pytype)!r} object {refuses} support item deletion")

"""Find what a program has put on torch.Tensor, in place of torch's own methods or beside them, and guard the rest."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.vm.lookup import guarded_lookup
from torchdynamo.capture.vm.wrap import class_attribute
from torchdynamo.core.value import Known, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def is_foreign(found: Any) -> bool:
    """Return whether a function is not torch's own."""
    return type(found) is types.FunctionType and not (found.__module__ or "").startswith("torch.")


def put_on(vm: Machine, tensor: TensorNode, name: str) -> Known | None:
    """Return the method that somebody has put on torch's class under a name; None for torch's own, or nothing."""
    found = guarded_lookup(vm, tensor.pytype, name)
    if not is_foreign(found):
        return None
    return Known(found, class_attribute(vm, tensor.pytype, name))


def answered(vm: Machine, tensor: Value, name: str, *args: Value) -> Value | None:
    """Return what a method that somebody put on torch's class gives; None where there is none, or it declines."""
    written = put_on(vm, tensor, name) if tensor.__class__ is TensorNode else None
    answer = None if written is None else vm.call(written, [tensor, *args], {})
    return None if answer.__class__ is Known and answer.obj is NotImplemented else answer


def of_operator(vm: Machine, names: tuple[str, ...], reflected: str, a: Value, b: Value) -> Value | None:
    """Return what an operator gives by methods put on torch's class, the left operand's first; None if it has none."""
    for name in names:
        answer = answered(vm, a, name, b)
        if answer is not None:
            return answer
    return answered(vm, b, reflected, a)

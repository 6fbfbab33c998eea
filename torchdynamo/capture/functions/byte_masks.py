"""Conditions of `torch.where` that are bytes, as masks once were: operators take them for booleans, and rules for
tracing do not take them at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from torchdynamo.capture.vm.model import function, models
from torchdynamo.core.value import Known, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

BOOL = Known(torch.bool)


def as_mask(vm: Machine, condition: Value) -> Value:
    if condition.__class__ is TensorNode and condition.fake.dtype is torch.uint8:
        return vm.emit("call_method", "to", [condition, BOOL], {})
    return condition


@function(torch.where)
def where(vm: Machine, condition: Value, /, *args: Value, **kwargs: Value) -> Value:
    if args or kwargs:
        condition = as_mask(vm, condition)
    return vm.emit("call_function", torch.where, [condition, *args], kwargs)


@models(torch._C.TensorBase, "where")
def where_of(vm: Machine, self: Value, condition: Value, /, *args: Value, **kwargs: Value) -> Value:
    return vm.emit("call_method", "where", [self, as_mask(vm, condition), *args], kwargs)

"""Attributes and methods."""

from __future__ import annotations

from typing import Any

from torchdynamo.bytecode import versions
from torchdynamo.bytecode.instruction import Instruction
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.interpreter import op
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.value import ABSENT, Value


@op("LOAD_ATTR", "obj -- value")
def load_attr(vm: Machine, frame: Frame, inst: Instruction, obj: Value) -> Value:
    return vm.getattr(obj, inst.arg)


@op("LOAD_METHOD", "obj -- first second")
def load_method(vm: Machine, frame: Frame, inst: Instruction, obj: Value) -> tuple[Any, Any]:
    method = vm.method(obj, inst.arg)
    if method is not None:
        return method, obj
    value = vm.getattr(obj, inst.arg)
    return (ABSENT, value) if versions.NULL_FIRST else (value, ABSENT)


@op("STORE_ATTR", "value obj --")
def store_attr(vm: Machine, frame: Frame, inst: Instruction, value: Value, obj: Value) -> None:
    vm.setattr(obj, inst.arg, value)


@op("DELETE_ATTR", "obj --")
def delete_attr(vm: Machine, frame: Frame, inst: Instruction, obj: Value) -> None:
    vm.delattr(obj, inst.arg)


@op("LOAD_SUPER", "super cls obj -- *values", pops=lambda arg: 3)
def load_super(vm: Machine, frame: Frame, inst: Instruction, sup: Value, cls: Value, obj: Value) -> Any:
    name, is_method, _ = inst.arg
    proxy = vm.call(sup, [cls, obj], {})
    value = vm.getattr(proxy, name)
    if not is_method:
        return (value,)
    return (ABSENT, value) if versions.NULL_FIRST else (value, ABSENT)

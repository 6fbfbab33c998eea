"""Operators, comparisons, subscripts, formatting."""

from __future__ import annotations

from typing import Any

from torchdynamo.bytecode.instruction import Instruction
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.interpreter import op
from torchdynamo.capture.vm.construction import CONVERSIONS
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.value import Known, Value


@op("BINARY", "a b -- c")
def binary(vm: Machine, frame: Frame, inst: Instruction, a: Value, b: Value) -> Value:
    return vm.binary(inst.arg, a, b)


@op("UNARY", "a -- b")
def unary(vm: Machine, frame: Frame, inst: Instruction, a: Value) -> Value:
    return vm.unary(inst.arg, a)


@op("COMPARE", "a b -- answer")
def compare(vm: Machine, frame: Frame, inst: Instruction, a: Value, b: Value) -> Value:
    return vm.compare(inst.arg, a, b)


@op("GETITEM", "box key -- item")
def getitem(vm: Machine, frame: Frame, inst: Instruction, box: Value, key: Value) -> Value:
    return vm.getitem(box, key)


@op("SETITEM", "value box key --")
def setitem(vm: Machine, frame: Frame, inst: Instruction, value: Value, box: Value, key: Value) -> None:
    vm.setitem(box, key, value)


@op("DELITEM", "box key --")
def delitem(vm: Machine, frame: Frame, inst: Instruction, box: Value, key: Value) -> None:
    vm.delitem(box, key)


@op("SLICE", "*parts -- slice", pops=lambda arg: arg)
def build_slice(vm: Machine, frame: Frame, inst: Instruction, *parts: Value) -> Value:
    return vm.make_slice(*parts)


@op("FORMAT", "*parts -- text", pops=lambda arg: 2 if arg[1] else 1)
def format_value(vm: Machine, frame: Frame, inst: Instruction, value: Value, spec: Any = None) -> Value:
    return vm.format_value(value, inst.arg[0], spec)


@op("CONVERT", "value -- text")
def convert_value(vm: Machine, frame: Frame, inst: Instruction, value: Value) -> Value:
    return vm.call(Known(CONVERSIONS[inst.arg]), [value], {})


@op("GET_LEN", "-- length")
def get_len(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    return vm.length(frame.stack[-1])

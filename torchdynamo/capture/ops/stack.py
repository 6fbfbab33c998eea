"""Moving things on the stack."""

from __future__ import annotations

from typing import Any

from torchdynamo.bytecode.instruction import Instruction
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.interpreter import op
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.value import ABSENT, Known, Value


@op("NOP", "--")
def nop(vm: Machine, frame: Frame, inst: Instruction) -> None:
    return None


@op("POP", "x --")
def pop(vm: Machine, frame: Frame, inst: Instruction, x: Value) -> None:
    return None


@op("NULL", "-- null")
def null(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    return ABSENT


@op("LOAD_CONST", "-- const")
def load_const(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    arg = inst.arg
    return Known(arg) if arg.__class__ is not tuple else lift(vm, arg)


@op("COPY", "-- x")
def copy(vm: Machine, frame: Frame, inst: Instruction) -> Any:
    return frame.stack[-inst.arg]


@op("SWAP", "--")
def swap(vm: Machine, frame: Frame, inst: Instruction) -> None:
    stack, depth = frame.stack, inst.arg
    stack[-1], stack[-depth] = stack[-depth], stack[-1]


@op("ROTATE", "--")
def rotate(vm: Machine, frame: Frame, inst: Instruction) -> None:
    frame.stack.insert(len(frame.stack) - inst.arg, frame.stack.pop())

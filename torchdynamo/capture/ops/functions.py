"""Making functions."""

from __future__ import annotations

from torchdynamo.bytecode.instruction import Instruction
from torchdynamo.capture.frame import Frame, MadeFunction
from torchdynamo.capture.interpreter import op
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.value import Value


@op("MAKE_FUNCTION", "*parts -- function", pops=lambda arg: len(arg or ()) + 1)
def make_function(vm: Machine, frame: Frame, inst: Instruction, *parts: Value) -> Value:
    given = dict(zip(inst.arg or (), parts))
    code = vm.known(parts[-1], "code")
    return vm.make_function(code, frame.globals, given)


@op("SET_FUNCTION_ATTRIBUTE", "part function -- function")
def set_function_attribute(vm: Machine, frame: Frame, inst: Instruction, part: Value, fn: Value) -> Value:
    made = vm.entity(vm.as_object(fn)).payload_as(MadeFunction)
    return vm.make_function(made.parts.code, frame.globals, {**made.given, inst.arg: part})

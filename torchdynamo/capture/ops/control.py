"""Jumps, branches, loops, return and yield."""

from __future__ import annotations

import torch

from torchdynamo.bytecode.instruction import CALLS, Instruction
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.interpreter import FINISHED, op
from torchdynamo.capture.speculate import assertions, jump_threading, unrolling, value_loops
from torchdynamo.capture.torch import symbols
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, Known, Symbol, TensorNode, Value


@op("JUMP", "-- jump")
def jump(vm: Machine, frame: Frame, inst: Instruction) -> int:
    return frame.code.targets[inst.arg]


def holds(vm: Machine, condition: str, value: Value) -> bool:
    if condition in ("none", "not none"):
        return vm.identical(value, NONE) == (condition == "none")
    return vm.truth(value) == (condition == "true")


@op("BRANCH", "x -- jump")
def branch(vm: Machine, frame: Frame, inst: Instruction, x: Value) -> int | None:
    condition, target = inst.arg
    if x.__class__ is Symbol and joins_at_target(vm, frame, inst, x, frame.stack):
        return frame.code.targets[target]
    if x.__class__ is TensorNode or x.__class__ is Symbol:
        truth = assertions.truth_to_go_on(vm, frame, x, condition, frame.code.targets[target])
        if truth is not None:
            return frame.code.targets[target] if truth == (condition == "true") else None
        meeting = value_loops.capture_branch(vm, frame, x, condition, frame.code.targets[target])
        if meeting is not None:
            return meeting
    if condition == "true" and (x.__class__ is TensorNode or x.__class__ is Symbol):
        x = vm.call(Known(bool), [x], {})
        message = assert_message(frame)
        if message is not None and symbols.unknown(vm, x) and not symbols.follows(vm, x):
            vm.call(Known(torch._assert), [x, Known(message)], {})
            return frame.code.targets[target]
    return frame.code.targets[target] if holds(vm, condition, x) else None


def joins_at_target(vm: Machine, frame: Frame, inst: Instruction, x: Symbol, straight: list[Value]) -> bool:
    """Return whether both ways of a branch lead to its target; the stack is then as it is there."""
    condition, label = inst.arg
    after = jump_threading.stack_after(vm, frame, x, condition, frame.code.targets[label], straight, frame.stack)
    if after is not None:
        frame.stack[:] = after
    return after is not None


def assert_message(frame: Frame) -> str | None:
    """Return the message of the `assert` that was just tested, "" if it is no constant; None if nothing is asserted."""
    following = frame.code.instructions[frame.pc + 1 : frame.pc + 6]
    if not any(inst.op == "LOAD_CONST" and inst.arg is AssertionError for inst in following[:2]):
        return None
    constants = [inst.arg for inst in following if inst.op == "LOAD_CONST" and type(inst.arg) is str]
    simple = {inst.op for inst in following[:4]} <= {"LOAD_CONST", "NULL", "RAISE", *CALLS}
    return constants[0] if constants and simple else ""


@op("BRANCH_KEEP", "-- jump")
def branch_keep(vm: Machine, frame: Frame, inst: Instruction) -> int | None:
    condition, target = inst.arg
    x = frame.stack[-1]
    if x.__class__ is Symbol and joins_at_target(vm, frame, inst, x, frame.stack[:-1]):
        return frame.code.targets[target]
    if holds(vm, condition, x):
        return frame.code.targets[target]
    frame.stack.pop()
    return None


@op("GET_ITER GET_YIELD_FROM_ITER", "box -- iterator")
def get_iter(vm: Machine, frame: Frame, inst: Instruction, box: Value) -> Value:
    return vm.iterator(box)


@op("FOR_ITER", "-- jump")
def for_iter(vm: Machine, frame: Frame, inst: Instruction) -> int | None:
    vm.count_turn(frame.raw.co_name)
    unrolling.count_turn(vm, frame)
    item = vm.advance(frame.stack[-1])
    if item is None:
        frame.stack.pop()
        return frame.code.targets[inst.arg]
    frame.stack.append(item)
    return None


@op("RETURN", "value -- jump")
def return_value(vm: Machine, frame: Frame, inst: Instruction, value: Value) -> int:
    if frame.handling and frame.root:  # the part of a generator that waits while it handles an exception
        raise Break("generator", name=frame.raw.co_name)
    frame.result = value
    return FINISHED


@op("YIELD", "value -- jump")
def yield_value(vm: Machine, frame: Frame, inst: Instruction, value: Value) -> int:
    if frame.root:
        raise Break("generator", name=frame.raw.co_name)
    frame.result = value
    frame.yielded = True
    frame.pc += 1
    return FINISHED


@op("SEND", "-- jump")
def send(vm: Machine, frame: Frame, inst: Instruction) -> int | None:
    """Execute a step of `yield from`: send the top of the stack to the iterator below; push its item, or its result."""
    value = frame.stack.pop()
    inner = frame.stack[-1]
    if value.__class__ is Known and value.obj is None:
        item, result = vm.advance_or_return(inner)
    else:
        item, result = vm.item_or_return(lambda: vm.call_method(inner, "send", value))
    if item is None:
        frame.stack[-1] = result
        return frame.code.targets[inst.arg]
    frame.stack.append(item)
    return None

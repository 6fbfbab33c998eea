"""Tests of numbers that make no difference: `n > 1 and mask is None and causal`, where there is a mask.

To ask for the truth of a size is to make a version of each answer. Where going straight on leads, by tests that are
known and do nothing else, to where the jump leads, nobody has to ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchdynamo.capture.frame import Frame
from torchdynamo.capture.signals import Break
from torchdynamo.capture.value import Known, Opaque, Symbol, Value, boolean

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine

FAR = 24  # instructions
PLAIN = (bool, int, str, type(None))


def stack_after(
    vm: Machine, frame: Frame, tested: Value, condition: str, target: int, stack: list[Value], kept: list[Value]
) -> list[Value] | None:
    """The stack at `target`, whatever `tested` is; None if that makes a difference.

    `stack` is what goes straight on, `kept` what the jump takes along.
    """
    if tested.__class__ is not Symbol or tested.pytype is not bool or condition not in ("true", "false"):
        return None
    there = straight_on(vm, frame, list(stack), target)
    if there is None or len(there) != len(kept):
        return None
    found = [either(tested, condition == "true", a, b) for a, b in zip(kept, there, strict=True)]
    return None if any(each is None for each in found) else found  # type: ignore[return-value]


def either(tested: Value, truth: bool, jumped: Value, went: Value) -> Value | None:
    """One value for both ways: `jumped` if the test has come out as `truth`, `went` if not."""
    if jumped is went:
        return went
    if jumped is not tested or went.__class__ is not Known or type(went.obj) is not bool:
        return None
    return boolean(truth) if went.obj == truth else tested


def straight_on(vm: Machine, frame: Frame, stack: list[Value], target: int) -> list[Value] | None:
    """The stack at `target` when nothing but known tests of locals and constants lies before it."""
    instructions, at = frame.code.instructions, frame.pc + 1
    for _ in range(FAR):
        if at == target:
            return stack
        op, arg = instructions[at].op, instructions[at].arg
        at += 1
        if op == "LOAD_FAST" or op == "LOAD_CONST":
            value = local(vm, frame, arg) if op == "LOAD_FAST" else Known(arg)
            if value is None:
                return None
            stack.append(value)
        elif op == "COPY":
            stack.append(stack[-arg])
        elif op == "POP":
            stack.pop()
        elif op == "JUMP":
            at = frame.code.targets[arg]
        elif op == "COMPARE" and arg in ("is", "is not"):
            b, a = stack.pop(), stack.pop()
            if not (is_none(a) or is_none(b)):
                return None
            stack.append(boolean((is_none(a) and is_none(b)) == (arg == "is")))
        elif op == "BRANCH" or op == "BRANCH_KEEP":
            known = decided(arg[0], stack[-1])
            if known is None:
                return None
            if op == "BRANCH" or not known:
                stack.pop()
            if known:
                at = frame.code.targets[arg[1]]
        elif op != "NOP":
            return None
    return None


def local(vm: Machine, frame: Frame, name: str) -> Value | None:
    """A local that can be looked at without an error."""
    value = frame.locals.get(name)
    if value.__class__ is Opaque:
        try:
            value = frame.locals[name] = vm.look(value)
        except Break:
            return None
    return value


def is_none(value: Value) -> bool:
    return value.__class__ is Known and value.obj is None


def decided(condition: str, value: Value) -> bool | None:
    """Whether a branch jumps, where that is known and nothing has to be asked."""
    if condition in ("none", "not none"):
        return is_none(value) == (condition == "none")
    if value.__class__ is Known and type(value.obj) in PLAIN:
        return bool(value.obj) == (condition == "true")
    return None

"""Skip tests of numbers that make no difference: `n > 1 and mask is None and causal`, where there is a mask.

To ask for the truth of a size is to make a version of each answer. Where going straight on leads, by tests that are
known and do nothing else, to where the jump leads, nobody has to ask. Such a test may look at a tensor's shape, and
call a function that takes nothing (`is_compiling()`): if that turns out to do more than answer, nothing of the kind is
called ahead.
"""

from __future__ import annotations

import inspect
import types
from functools import cache

import torch

from torchdynamo.bytecode.decode import decode
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.torch.symbols import COMPARISONS
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.wrap import wrap
from torchdynamo.core.signals import Assumption, Break, Raised, Retry
from torchdynamo.core.source import Source
from torchdynamo.core.value import ABSENT, Known, Lazy, Object, Symbol, TensorNode, Value, boolean, is_none

FAR = 24  # instructions
PLAIN = (bool, int, str, type(None))
UNUSUAL = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
SHAPE = frozenset({"shape", "ndim", "dtype", "device"})
WRITES = frozenset(
    {"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "SETITEM", "DELITEM", "YIELD", "RAISE"}
)


def stack_after(
    vm: Machine, frame: Frame, tested: Value, condition: str, target: int, stack: list[Value], kept: list[Value]
) -> list[Value] | None:
    """Return the stack at `target`, whatever `tested` is; None if that makes a difference.

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
    """Return one value for both ways: `jumped` if the test has come out as `truth`, `went` if not."""
    if jumped is went:
        return went
    if jumped is not tested or went.__class__ is not Known or type(went.obj) is not bool:
        return None
    return boolean(truth) if went.obj == truth else tested


def straight_on(vm: Machine, frame: Frame, stack: list[Value], target: int) -> list[Value] | None:
    """Return the stack at `target` when nothing but known tests of locals and constants lies before it."""
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
        elif op == "NULL" or op == "LOAD_GLOBAL":
            found = ABSENT if op == "NULL" else callable_or_module(vm, frame, arg)
            if found is None:
                return None
            stack.append(found)
        elif op in ("CALL", "CALL_FUNCTION") and arg == (0, ()):
            slots = [stack.pop() for _ in range(2 if op == "CALL" else 1)]
            answer = called(vm, [each for each in slots if each is not ABSENT])
            if answer is None:
                return None
            stack.append(answer)
        elif op == "LOAD_ATTR" and arg in SHAPE and stack[-1].__class__ is TensorNode:
            stack.append(vm.getattr(stack.pop(), arg))
        elif op == "LOAD_ATTR" and stack[-1].__class__ is Known and type(stack[-1].obj) is types.ModuleType:
            found = name_in_module(vm, stack.pop(), arg)
            if found is None:
                return None
            stack.append(found)
        elif op in ("COMPARE", "GETITEM"):
            b, a = stack.pop(), stack.pop()
            answer = compared(vm, arg, a, b) if op == "COMPARE" else item(vm, a, b)
            if answer is None:
                return None
            stack.append(answer)
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
    """Return a local; None if it cannot be looked at without an error."""
    value = frame.locals.get(name)
    if value.__class__ is Lazy:
        try:
            value = frame.locals[name] = vm.look(value)
        except Break:
            return None
    return value


def callable_or_module(vm: Machine, frame: Frame, name: str) -> Value | None:
    """Return a global module, or a function that can be called ahead: it takes nothing, and writes only to its locals.

    None for others.
    """
    found = frame.globals.real.get(name, MISSING)
    if Assumption.AHEAD in vm.builder.numbers.dropped or vm.effects.wrote_names or frame.globals.source is None:
        return None
    is_function = type(found) is types.FunctionType and answers(found.__code__)
    if not is_function and type(found) is not types.ModuleType:
        return None
    return wrap(vm, found, Source("key", frame.globals.source, name))


def name_in_module(vm: Machine, module: Value, name: str) -> Value | None:
    """Return what a module has under a name, if that is another module or a constant; else None."""
    assert isinstance(module, Known)
    found = vars(module.obj).get(name, MISSING)
    if vm.effects.wrote_names or type(found) not in (*PLAIN, types.ModuleType):
        return None
    return vm.getattr(module, name)


@cache
def answers(code: types.CodeType) -> bool:
    """Return whether a function is short, takes nothing, and writes to locals only."""
    taken = code.co_argcount or code.co_kwonlyargcount or code.co_freevars or code.co_flags & UNUSUAL
    instructions = [] if taken else decode(code).instructions
    return 0 < len(instructions) <= FAR and WRITES.isdisjoint(each.op for each in instructions)


def called(vm: Machine, what: list[Value]) -> Value | None:
    """Call a function ahead and return its constant result; None for another. Retries if it had side effects."""
    if len(what) != 1 or what[0].__class__ is not Known:
        return None
    ops, mark = vm.ops, vm.effects.mark()
    try:
        answer = vm.call(what[0], [], {})
    except (Break, Raised):
        raise Retry(Assumption.AHEAD) from None
    if vm.ops != ops or vm.effects.since(mark):
        raise Retry(Assumption.AHEAD)
    return answer if answer.__class__ is Known and type(answer.obj) in PLAIN else None


def compared(vm: Machine, sign: str, a: Value, b: Value) -> Value | None:
    """Return the result of comparing constants, or of asking whether anything is None; None if it is not known."""
    if sign in ("is", "is not"):
        return boolean((is_none(a) and is_none(b)) == (sign == "is")) if is_none(a) or is_none(b) else None
    known = sign in COMPARISONS and all(each.__class__ is Known and type(each.obj) is int for each in (a, b))
    return vm.binary(sign, a, b) if known else None


def item(vm: Machine, box: Value, at: Value) -> Value | None:
    """Return one of a tensor's sizes; None for an item of anything else."""
    sizes = list(vm.iterate(box)) if box.__class__ is Object and box.pytype is torch.Size else []
    if at.__class__ is not Known or type(at.obj) is not int or not -len(sizes) <= at.obj < len(sizes):
        return None
    return sizes[at.obj]


def decided(condition: str, value: Value) -> bool | None:
    """Return whether a branch jumps, where that is known and nothing has to be asked."""
    if condition in ("none", "not none"):
        return is_none(value) == (condition == "none")
    if value.__class__ is Known and type(value.obj) in PLAIN:
        return bool(value.obj) == (condition == "true")
    return None

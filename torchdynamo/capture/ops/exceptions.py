"""try, except, finally, with, raise, assert."""

from __future__ import annotations

import types
from typing import Any

from torchdynamo.bytecode import versions
from torchdynamo.bytecode.instruction import Instruction
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.interpreter import op
from torchdynamo.capture.types import exception_groups, exceptions
from torchdynamo.capture.vm import lookup
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.refused_operands import named_like
from torchdynamo.core.signals import Break, Raised
from torchdynamo.core.value import ABSENT, NONE, Known, Value, boolean


@op("PUSH_EXC_INFO", "exc -- previous exc")
def push_exc_info(vm: Machine, frame: Frame, inst: Instruction, exc: Value) -> Any:
    previous = Known(None)  # found again where the frame is left; nobody looks at what it holds
    frame.handling.append(vm.as_object(exc))
    frame.previous.append(previous)
    return previous, exc


@op("POP_EXCEPT", "*previous --", pops=lambda _: versions.EXCEPTION_SLOTS)
def pop_except(vm: Machine, frame: Frame, inst: Instruction, *previous: Value) -> None:
    if not frame.handling:
        raise Break("unsupported instruction", name=inst.op)
    frame.handling.pop()
    frame.previous.pop()


@op("EXC_MATCH", "*compared -- answer", pops=lambda _: versions.EXCEPTION_AT)
def exc_match(vm: Machine, frame: Frame, inst: Instruction, *compared: Value) -> Value:
    return boolean(exceptions.matches(vm, frame.stack[-versions.EXCEPTION_AT], compared[-1]))


@op("RERAISE", "*exc -- jump", pops=lambda _: versions.EXCEPTION_SLOTS)
def reraise(vm: Machine, frame: Frame, inst: Instruction, *exc: Value) -> None:
    raise Raised(vm.as_object(exc[-versions.EXCEPTION_AT]))


@op("SETUP_FINALLY POP_BLOCK", "--")
def change_handlers(vm: Machine, frame: Frame, inst: Instruction) -> None:
    """Leave the block stack alone: what is on it at each instruction is known."""


@op("RAISE", "*parts -- jump", pops=lambda arg: arg)
def raise_(vm: Machine, frame: Frame, inst: Instruction, *parts: Value) -> None:
    raise (
        exceptions.raise_new(vm, parts[0], parts[1] if len(parts) > 1 else None)
        if parts
        else exceptions.raise_again(vm)
    )


@op("WITH_ENTER", "manager -- exit result")
def with_enter(vm: Machine, frame: Frame, inst: Instruction, manager: Value) -> Any:
    for name in REFUSALS:
        refuse_without(vm, manager, name)
    exit_ = vm.bound_special(manager, "__exit__")
    result = vm.special(manager, "__enter__")
    if exit_ is None or result is None:
        raise Break("unknown context manager", type=manager.pytype.__name__)
    return exit_, result


@op("LOAD_SPECIAL", "manager -- method null")
def load_special(vm: Machine, frame: Frame, inst: Instruction, manager: Value) -> Any:
    """Look up a method of a context manager, as the two slots of a call."""
    refuse_without(vm, manager, inst.arg)
    method = vm.bound_special(manager, inst.arg) if inst.arg in REFUSALS else None
    if method is None:
        raise Break("unknown context manager", type=manager.pytype.__name__)
    return method, ABSENT


def refuse_without(vm: Machine, manager: Value, name: str) -> None:
    """Raise the program's error, in the words of this version of Python, where a context manager has no such method."""
    if name in REFUSALS and lookup.guarded_lookup(vm, manager.pytype, name) is MISSING:
        refused: Any = named_like(manager.pytype, **REFUSALS[name])
        try:
            with refused():
                raise AssertionError("entered")
        except (TypeError, AttributeError) as error:
            raise vm.refused(error) from None


REFUSALS: dict[str, dict[str, Any]] = {"__enter__": {"__exit__": id}, "__exit__": {"__enter__": id}}
"""By method of a context manager: what a class has that is refused for the want of it."""


@op("WITH_EXIT", "-- answer")
def with_exit(vm: Machine, frame: Frame, inst: Instruction) -> Value:
    """Call `__exit__` with the exception that is being handled."""
    exc, exit_ = frame.stack[-versions.EXCEPTION_AT], frame.stack[-versions.EXIT_DEPTH]
    traceback = vm.new(types.TracebackType)
    return vm.call(exit_, [Known(exc.pytype), exc, traceback], {})


@op("EG_MATCH", "exc classes -- rest match")
def eg_match(vm: Machine, frame: Frame, inst: Instruction, exc: Value, classes: Value) -> Any:
    """Execute the match of `except* classes`: the part that is caught is handled from now on."""
    rest, match = exception_groups.caught(vm, exc, classes)
    if match is not NONE:
        frame.handling[-1] = vm.as_object(match)
    return rest, match


@op("INTRINSIC", "*given -- y", pops=lambda name: 2 if name == "PREP_RERAISE_STAR" else 1)
def intrinsic(vm: Machine, frame: Frame, inst: Instruction, x: Value, *rest: Value) -> Value:
    """Execute an intrinsic: regroup the exceptions of an `except*`."""
    if inst.arg != "PREP_RERAISE_STAR":
        raise Break("unsupported instruction", name=inst.arg)
    return exception_groups.left_over(vm, x, *rest)

"""Exceptions in Pythons whose handlers are on a block stack: what a handler finds on the stack, and where it is."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from torchdynamo.bytecode.handlers import Handler, handlers
from torchdynamo.bytecode.versions import EXCEPTION_SLOTS
from torchdynamo.core.value import Known, Value

if TYPE_CHECKING:
    from torchdynamo.capture.frame import Frame
    from torchdynamo.capture.vm.machine import Machine


def unwind(vm: Machine, frame: Frame, raised: Value) -> bool:
    """Go to the handler of the current instruction, if there is one, and end those that are left."""
    for block in reversed(handlers(frame.code)[frame.pc]):
        if isinstance(block, Handler):
            enter(vm, frame, block, raised)
            return True
        frame.handling.pop()
        frame.previous.pop()
    return False


def enter(vm: Machine, frame: Frame, handler: Handler, raised: Value) -> None:
    """Go to a handler: push what is handled now, and the exception."""
    exc = vm.as_object(raised)
    del frame.stack[handler.depth :]
    before = [Known(None) for _ in range(EXCEPTION_SLOTS)]  # nobody looks at what they hold
    frame.handling.append(exc)
    frame.previous.append(before[0])
    frame.stack += [*before, vm.new(types.TracebackType), exc, Known(exc.pytype)]
    frame.pc = handler.at

"""Frames of generators that the program made: stepped, sent to, thrown into."""

from __future__ import annotations

import types
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

from torchdynamo.capture import interpreter
from torchdynamo.capture.frame import Frame
from torchdynamo.capture.vm import c_fields, iteration, lookup
from torchdynamo.capture.vm.exception_state import ExceptionState
from torchdynamo.core.signals import Raised
from torchdynamo.core.value import NONE, TRUE, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def generator(vm: Machine, value: Object) -> Iterator[Value]:
    """Return the items that a generator made by the frame has yet to yield."""
    entity = vm.entity(value)
    if entity.items is None:
        entity.items = iteration.IteratorState(vm.effects, entity, vm.resume(value), None)
    return entity.items


def resume(vm: Machine, value: Object) -> Generator[Value, Value, None]:
    """Execute the frame of a generator, and yield what it yields. `throw` on this throws at the `yield`."""
    frame = vm.entity(value).payload_as(Frame)
    while True:
        frame.yielded = False
        try:
            result = vm.run(frame)
        except Raised as raised:
            if issubclass(raised.value.pytype, StopIteration):
                error = vm.error(RuntimeError, "generator raised StopIteration")
                links: dict[str, Value] = {
                    "__cause__": raised.value,
                    "__context__": raised.value,
                    "__suppress_context__": TRUE,
                }
                vm.effects.write_all(vm.entity(error.value), links)
                vm.entity(error.value).payload = ExceptionState(raised=True)
                raise error from None
            raise
        if not frame.yielded:
            vm.effects.write(vm.entity(value), "return", result)
            return
        waiting = True
        while waiting:
            waiting = False
            try:
                sent = yield result
                frame.stack.append(NONE if sent is None else sent)
            except Raised as thrown:  # at the `yield`, where it may be caught
                frame.pc -= 1
                try:
                    item = throw_inside(vm, frame, thrown)
                except Raised as through:
                    frame.stack.append(NONE)  # in the place of what would have been sent
                    if not interpreter.unwind(vm, frame, through):
                        raise
                else:
                    waiting = item is not None
                    result = result if item is None else item


def throw_inside(vm: Machine, frame: Frame, thrown: Raised) -> Value | None:
    """Throw into the iterator that a generator waits for in `yield from`.

    Returns what that yields, and the generator waits on; or None where it returned: the generator goes on after it.
    """
    send = frame.code.instructions[frame.pc - 1]
    if send.op != "SEND":
        raise thrown
    inner = frame.stack[-1]
    if issubclass(thrown.value.pytype, GeneratorExit):
        if vm.has_attribute(inner, "close") is not None:
            vm.call_method(inner, "close")
        raise thrown
    if vm.has_attribute(inner, "throw") is None:
        raise thrown
    item, result = vm.item_or_return(lambda: vm.call_method(inner, "throw", thrown.value))
    if item is not None:
        frame.pc += 1
        return item
    frame.pc = frame.code.targets[send.arg]
    frame.stack[-1] = result
    return None


def item_or_return(vm: Machine, step: Callable[[], Value]) -> tuple[Value | None, Value]:
    """Take one step of an iterator. Returns its item; or None, and what it returned."""
    try:
        return step(), NONE
    except Raised as raised:
        if not issubclass(raised.value.pytype, StopIteration):
            raise
        return None, c_fields.read(vm, raised.value, StopIteration, "value")


def advance_or_return(vm: Machine, value: Value) -> tuple[Value | None, Value]:
    """Take one step of `yield from`. Returns the item; or None, and the value of `return`."""
    if type(lookup.guarded_lookup(vm, value.pytype, "__next__")) is types.FunctionType:
        return vm.item_or_return(lambda: vm.special(value, "__next__"))
    item = vm.advance(value)
    if item is not None:
        return item, NONE
    return None, vm.entity(vm.as_object(value)).attrs.get("return", NONE)

"""Generators made in the frame: stepped, sent to, thrown into and closed like Python's."""

from __future__ import annotations

import inspect
import types
from collections.abc import Generator
from typing import Any

from torchdynamo.capture.frame import Frame
from torchdynamo.capture.vm.emitted_calls import push_call_by_name
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.iteration import IteratorState
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, function, models, rebuilds
from torchdynamo.core.signals import Break, Raised, Restart
from torchdynamo.core.value import NONE, Known, Object, Value, boolean

GENERATOR = types.GeneratorType


def steps_of(vm: Machine, self: Object) -> IteratorState:
    """Return the steps of a generator. Ends the graph for one that existed before the frame."""
    if vm.entity(self).payload is None:
        raise Break("unknown iterator", type="generator")
    return vm.generator(self)  # type: ignore[return-value]


def inner(steps: IteratorState) -> Generator[Value, Value, None]:
    """Return the host's generator that runs the steps."""
    found: Any = steps.inner
    return found


def body(steps: IteratorState) -> Generator[Value, Value, None]:
    """Return the host's generator, to be stepped."""
    steps.effects.items(steps.entity)
    return inner(steps)


def stop(vm: Machine, self: Value) -> Raised:
    """Return StopIteration with what a generator returned, or the exception by which an iterator ended."""
    entity = vm.entity(vm.as_object(self))
    if entity.items.__class__ is IteratorState and entity.items.ended is not None:
        ended: Raised = entity.items.ended
        return ended
    result = vm.effects.drop(entity, "return") or NONE
    if result.__class__ is Known and result.obj is None:
        return vm.error(StopIteration)
    raised = vm.error(StopIteration)
    entity = vm.entity(raised.value)
    entity.items = [result]
    vm.effects.write(entity, "value", result)
    return raised


@function(inspect.getgeneratorstate)
def state(vm: Machine, generator: Object) -> Value:
    steps = steps_of(vm, generator)
    now = inspect.getgeneratorstate(inner(steps))
    return Known(now if steps.count or now != inspect.GEN_SUSPENDED else inspect.GEN_CREATED)


@models(GENERATOR, ".gi_running")
def running(vm: Machine, self: Object) -> Value:
    return boolean(inspect.getgeneratorstate(inner(steps_of(vm, self))) == inspect.GEN_RUNNING)


@models(GENERATOR, "__next__")
def next_(vm: Machine, self: Object) -> Value:
    item = next(steps_of(vm, self), None)
    if item is None:
        raise stop(vm, self)
    return item


@models(GENERATOR, "__iter__")
def iter_(vm: Machine, self: Object) -> Value:
    return self


@models(GENERATOR, "send")
def send(vm: Machine, self: Object, value: Value) -> Value:
    steps = steps_of(vm, self)
    if steps.count == 0:
        if value.__class__ is not Known or value.obj is not None:
            raise vm.error(TypeError, "can't send non-None value to a just-started generator")
        return next_(vm, self)
    try:
        return body(steps).send(value)
    except StopIteration:
        raise stop(vm, self) from None


@models(GENERATOR, "throw")
def throw(vm: Machine, self: Object, *parts: Value) -> Value:
    """Raise an exception where the generator waits; a generator that has not begun ends."""
    steps = steps_of(vm, self)
    exc = thrown(vm, parts)
    if steps.count == 0:
        body(steps).close()
        raise Raised(exc)
    try:
        return body(steps).throw(Raised(exc))
    except StopIteration:
        raise stop(vm, self) from None


def thrown(vm: Machine, parts: tuple[Value, ...]) -> Object:
    """Return the exception of `throw(exception)` or of the older `throw(class, exception or argument, traceback)`."""
    first = parts[0]
    if first.__class__ is Object:
        return first
    second = parts[1] if len(parts) > 1 else NONE
    if second.__class__ is Object and issubclass(second.pytype, vm.known(first, "class")):
        return second
    given = [] if second.__class__ is Known and second.obj is None else [second]
    return vm.as_object(vm.call(first, given, {}))


@models(GENERATOR, "close")
def close(vm: Machine, self: Object) -> Value:
    steps = steps_of(vm, self)
    if steps.count == 0:
        body(steps).close()
        return NONE
    try:
        body(steps).throw(vm.error(GeneratorExit))
    except StopIteration:
        return NONE
    except Raised as raised:
        if issubclass(raised.value.pytype, GeneratorExit):
            return NONE
        raise
    raise vm.error(RuntimeError, "generator ignored GeneratorExit")


@rebuilds(GENERATOR)
def rebuild(emit: Emitter, entity: Entity) -> None:
    """Make a generator that has not begun by the call that made it; one that has cannot be made again."""
    frame, steps = entity.payload_if(Frame), entity.items
    begun = steps is not None and inspect.getgeneratorstate(inner(steps)) != inspect.GEN_CREATED
    if frame is None or frame.made_by is None or frame.globals.source is None or begun:
        raise Restart(entity.born - 1)
    call = frame.made_by
    push_call_by_name(emit, made_by, [call.fn, *call.args], call.kwargs)


def made_by(fn: Any, /, *args: Any, **kwargs: Any) -> Any:
    return fn(*args, **kwargs)

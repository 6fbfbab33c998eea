"""Calls in emitted code: what rows that materialize objects and replay side effects are mostly made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from torchdynamo.bytecode import versions
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.model import Emitter
from torchdynamo.core.value import Value

VALUES = frozenset(get_args(Value))


def push(emit: Emitter, part: Any) -> None:
    """Push a value, an object that exists by now (an Entity), a new list of values, or else a constant."""
    if part.__class__ in VALUES:
        emit.value(part)
    elif part.__class__ is Entity:
        emit.local(part)
    elif part.__class__ is list:
        for item in part:
            emit.value(item)
        emit.op("BUILD", ("list", len(part)))
    else:
        emit.const(part)


def push_call(emit: Emitter, fn: Any, *args: Any) -> None:
    """Push what a function gives for these arguments, each as `push` takes it."""
    emit.function(fn)
    for arg in args:
        push(emit, arg)
    emit.op("CALL", (len(args), ()))


def push_call_by_name(emit: Emitter, fn: Any, args: Iterable[Value], kwargs: Mapping[str, Value]) -> None:
    """Push what a function gives for these values, of which `kwargs` are passed by name."""
    (emit.function if versions.CALL_HAS_NULL else emit.const)(fn)
    given = [*args, *kwargs.values()]
    for value in given:
        emit.value(value)
    emit.op("CALL" if versions.CALL_HAS_NULL else "CALL_FUNCTION", (len(given), tuple(kwargs)))


def replay_call(emit: Emitter, fn: Any, *args: Any) -> None:
    """Call a function with these arguments, each as `push` takes it, for what it does: what it gives is dropped."""
    push_call(emit, fn, *args)
    emit.op("POP")


def refill(emit: Emitter, entity: Entity, clear: Any, fill: Any) -> None:
    """Empty an object (not if `clear` is None), fill it with what is on top of the stack, and drop that."""
    if clear is not None:
        replay_call(emit, clear, entity)
    emit.function(fill)
    emit.local(entity)
    emit.op("COPY", 4)
    emit.op("CALL", (2, ()))
    emit.op("POP")
    emit.op("POP")

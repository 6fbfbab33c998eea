"""Exceptions that the program raises, and the exceptions that are their context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchdynamo.capture.vm import c_fields, model
from torchdynamo.capture.vm.exception_state import state_of
from torchdynamo.core.signals import Raised
from torchdynamo.core.value import NONE, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def error(vm: Machine, cls: type[BaseException], *args: Any) -> Raised:
    """Return the exception `cls(*args)` as the program raises it, to be raised by whoever asks."""
    made: Object = model.MODELS[BaseException, "__new__"](vm, Known(cls), *(vm.constant(arg) for arg in args))
    return Raised(made)


def refused(vm: Machine, real: BaseException) -> Raised:
    """Return a real exception, which Python raised while the frame was captured, as the program raises it."""
    return error(vm, type(real), *real.args)


def refused_call(vm: Machine, fn: Any, *args: Any) -> Raised:
    """Return the error of a call that Python refuses, in the words of its version, as the program raises it."""
    try:
        fn(*args)
    except (TypeError, ValueError) as error:
        return refused(vm, error)
    raise AssertionError(f"{fn} takes {args}")


def name_error(vm: Machine, name: str, text: str) -> Raised:
    """Return a NameError that keeps the name."""
    raised = vm.error(NameError, text)
    vm.effects.write(vm.entity(raised.value), "name", Known(name))
    return raised


def note_raised(vm: Machine, exc: Object) -> None:
    """Give an exception that the frame made its context, the first time it is raised."""
    entity = vm.entity(exc)
    state = state_of(entity)
    if entity.fresh and not state.raised:
        entity.payload = state._replace(raised=True)
        vm.put_in_context(exc)


def put_in_context(vm: Machine, exc: Object) -> None:
    """Make the exception that is being handled the context of `exc`. Two are not each other's."""
    found = [handled for frame in vm.frames for handled in frame.handling]
    if not found or found[-1].ref == exc.ref:
        return
    link: Value | None = found[-1]
    gone: set[int] = set()  # a program may have closed the chain to a ring
    while link.__class__ is Object and link.ref not in gone:
        gone.add(link.ref)
        entity = vm.entity(link)
        link = c_fields.held(entity, BaseException, "__context__")
        if link.__class__ is Object and link.ref == exc.ref:
            c_fields.hold(vm, entity, BaseException, __context__=NONE)
            break
    c_fields.hold(vm, vm.entity(exc), BaseException, __context__=found[-1])

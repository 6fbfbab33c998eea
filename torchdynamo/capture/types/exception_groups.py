"""Exception groups: taken apart by Python code that says again what Python's own does in C; `except*`."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import builtins
from typing import Any

from torchdynamo._native import type_name
from torchdynamo.capture.types import exceptions
from torchdynamo.capture.vm.exception_state import ExceptionState, state_of
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function, models
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, TRUE, Known, Object, Value, boolean

GROUP: Any = getattr(builtins, "BaseExceptionGroup", None)  # where Python has them
PLAIN_GROUP: Any = getattr(builtins, "ExceptionGroup", None)


def new(vm: Machine, cls: Known, /, *args: Value) -> Value:
    """Return the message and a tuple of the exceptions.

    Raises, in the program, where these are not of the right kind.
    """
    real = cls.obj
    if len(args) != 2:
        raise vm.error(TypeError, f"BaseExceptionGroup.__new__() takes exactly 2 arguments ({len(args)} given)")
    message, given = args
    if type(vm.known(message, "message")) is not str:
        raise vm.error(TypeError, f"argument 1 must be str, not {type_name(message.pytype)}")
    if not issubclass(given.pytype, (list, tuple)):
        raise Break("unsupported type", type=real.__name__)
    parts = list(vm.iterate(given))
    if not parts:
        raise vm.error(ValueError, "second argument (exceptions) must be a non-empty sequence")
    for at, part in enumerate(parts):
        if not issubclass(part.pytype, BaseException):
            raise vm.error(ValueError, f"Item {at} of second argument (exceptions) is not an exception")
    plain = all(issubclass(part.pytype, Exception) for part in parts)
    if real is GROUP and plain:
        real = PLAIN_GROUP
    elif not plain and issubclass(real, Exception):
        what = "Cannot nest BaseExceptions in an ExceptionGroup"
        raise vm.error(TypeError, what if real is PLAIN_GROUP else f"Cannot nest BaseExceptions in {type_name(real)!r}")
    made = vm.new(real, [message, given])
    fields(vm, made, message, vm.make_tuple(parts))
    return made


def fields(vm: Machine, made: Object, message: Value, parts: Value) -> None:
    """Set the message and the exceptions of a group. As read at entry, too: materializing calls `__new__` with them."""
    entity = vm.entity(made)
    for name, value in (("message", message), ("exceptions", parts)):
        entity.loaded[name] = value
        vm.effects.write(entity, name, value)


def init(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
    if kwargs:
        raise vm.error(TypeError, f"{type_name(self.pytype)}() takes no keyword arguments")
    return NONE


def text(vm: Machine, self: Object) -> Value:
    return vm.call(Known(say), [self], {})


def say(self):
    count = len(self.exceptions)
    return f"{self.message} ({count} sub-exception{'s' if count > 1 else ''})"


def derive(vm: Machine, self: Object, parts: Value) -> Value:
    return vm.call(Known(GROUP), [vm.getattr(self, "message"), parts], {})


def split(vm: Machine, self: Object, condition: Value) -> Value:
    return vm.call(Known(split_group), [self, test_of(vm, condition)], {})


def subgroup(vm: Machine, self: Object, condition: Value) -> Value:
    return vm.getitem(split(vm, self, condition), Known(0))


def test_of(vm: Machine, condition: Value) -> Value:
    """Return a condition on exceptions as a function; classes mean instances of them."""
    wanted = condition.obj if condition.__class__ is Known else None
    classes = wanted if isinstance(wanted, tuple) else (wanted,)
    if wanted is not None and all(isinstance(each, type) and issubclass(each, BaseException) for each in classes):
        return vm.call(Known(instance_test), [condition], {})
    if not vm.truth(vm.call(Known(callable), [condition], {})):
        raise vm.error(TypeError, "expected a function, exception type or tuple of exception types")
    return condition


def instance_test(classes):
    return lambda error: isinstance(error, classes)


def split_group(group, test):
    """Return the part of the group that the test holds for, and the rest."""
    if test(group):
        return group, None
    held, rest = [], []
    for each in group.exceptions:
        if isinstance(each, GROUP):
            ours, theirs = split_group(each, test)
        else:
            ours, theirs = (each, None) if test(each) else (None, each)
        if ours is not None:
            held.append(ours)
        if theirs is not None:
            rest.append(theirs)
    return part_of(group, held), part_of(group, rest)


def part_of(group, parts):
    if not parts:
        return None
    made = group.derive(parts)
    if not isinstance(made, GROUP):
        raise TypeError("derive must return an instance of BaseExceptionGroup")
    inherit(made, group)
    return made


def inherit(made, group):
    """Stand for `inherit_from`, which is captured in its place."""


@function(inherit)
def inherit_from(vm: Machine, made: Object, group: Object) -> Value:
    """Give a part of a group the cause, the context, the traceback and the notes of the whole."""
    mine, whole = vm.entity(made), vm.entity(group)
    if not whole.fresh or not mine.fresh:
        raise Break("unsupported method", name="split", type=group.pytype.__name__)
    for name in ("__cause__", "__context__"):
        if name in whole.attrs:
            vm.effects.write(mine, name, whole.attrs[name])
    vm.effects.write(mine, "__suppress_context__", TRUE)  # as setting a cause does, be it None
    if "__notes__" in whole.attrs:
        notes = vm.new(list, list(vm.iterate(whole.attrs["__notes__"])))
        vm.effects.write(mine, "__notes__", notes)
    state = state_of(whole)
    vm.effects.remember(mine, ExceptionState(state.raised, state.whole or group))
    return NONE


# -- except* ----------------------------------------------------------------------------------------------------------
def caught(vm: Machine, exc: Value, classes: Value) -> tuple[Value, Value]:
    """Return what `except* classes` leaves of an exception, and what it catches: a group, or None."""
    wanted = vm.concretely(classes)
    for cls in wanted if isinstance(wanted, tuple) else (wanted,):
        if not isinstance(cls, type) or not issubclass(cls, BaseException):
            raise vm.error(TypeError, "catching classes that do not inherit from BaseException is not allowed")
        if issubclass(cls, GROUP):
            text = "catching ExceptionGroup with except* is not allowed. Use except instead."
            raise vm.error(TypeError, text)
    if exc is NONE or exc.__class__ is Known:
        return exc, NONE
    if exceptions.matches(vm, exc, classes):
        if issubclass(exc.pytype, GROUP):
            return NONE, exc
        return NONE, vm.call(Known(GROUP), [Known(""), vm.make_tuple([exc])], {})
    if not issubclass(exc.pytype, GROUP):
        return exc, NONE
    held, rest = vm.unpack(vm.call_method(exc, "split", classes), 2)
    return (exc, held) if held is NONE else (rest, held)


def left_over(vm: Machine, whole: Value, left: Value) -> Value:
    """Return what is raised after the last `except*`: what nobody caught, as it was, and what the handlers raised."""
    if not issubclass(whole.pytype, GROUP):
        return next((each for each in vm.iterate(left) if each is not NONE), NONE)
    return vm.call(Known(left_of), [whole, left], {})


def left_of(whole, left):
    left = [each for each in left if each is not None]
    raised = [each for each in left if not is_part(each, whole)]
    leaves = [leaf for each in left if is_part(each, whole) for leaf in leaves_of(each)]
    rest = project(whole, leaves)
    if rest is not None:
        raised.append(rest)
    if len(raised) > 1:
        return GROUP("", raised)
    return raised[0] if raised else None


def leaves_of(error):
    if not isinstance(error, GROUP):
        return [error]
    return [leaf for each in error.exceptions for leaf in leaves_of(each)]


def project(group, leaves):
    """Return a new group with these leaves only, even if they are all of them."""
    kept = []
    for each in group.exceptions:
        part = project(each, leaves) if isinstance(each, GROUP) else each
        if part is not None and (part is not each or any(each is leaf for leaf in leaves)):
            kept.append(part)
    return part_of(group, kept)


def is_part(error, whole):
    """Stand for `is_part_of`, which is captured in its place."""


@function(is_part)
def is_part_of(vm: Machine, error: Object, whole: Object) -> Value:
    """Return whether an exception is the group, or a part of it that nobody raised anew."""
    owner = state_of(vm.entity(error)).whole or error
    top = state_of(vm.entity(whole)).whole or whole
    return boolean(vm.identical(owner, top))


if GROUP is not None:
    for _name, _row in (
        ("__new__", new),
        ("__init__", init),
        ("__str__", text),
        ("derive", derive),
        ("split", split),
        ("subgroup", subgroup),
    ):
        models(GROUP, _name)(_row)

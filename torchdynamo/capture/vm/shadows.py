"""Shadows: real objects beside symbolic ones, on which methods of C are run while a frame is captured.

What such an object holds is constant for a capture. The shadow is the entity's `items`: of an object that existed it is
a copy, made under a guard. A row of the type `Shadow` says what differs by type.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Container
from typing import Any, NamedTuple

from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Model, models
from torchdynamo.capture.vm.scalar_subclasses import plainly
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.signals import Break
from torchdynamo.core.value import Known, Object, Value

# Slots that files of types write rows of their own for, or that say nothing of what is held.
OWN_ROWS = frozenset(
    "__new__ __init__ __iter__ __next__ __getattribute__ __setattr__ __del__ __buffer__ __release_buffer__".split()
)


def seeded(vm: Machine, self: Object, name: str) -> Any:
    """Return the generator of random numbers that draws for this one. Ends the graph if the frame has not seeded it."""
    entity = vm.entity(self)
    if entity.items is None:
        raise Break("builtin with effects", name=f"{self.pytype.__name__}.{name}")
    return entity.items


def argument_of(vm: Machine, arg: Value) -> Any:
    """Return an argument as a real object, which the method may only read. Ends the graph where that is not known."""
    return vm.concretely(plainly(vm, arg))


def lift_result(vm: Machine, self: Object, name: str, result: Any) -> Value:
    """Return the value of what a method gave."""
    return lift(vm, result)


def holder(vm: Machine, self: Object) -> Object | None:
    """Return the object whose contents a method may write to: the one that it is called on."""
    return self


class Shadow(NamedTuple):
    """Say how methods are run on real objects of a type."""

    real: Callable[[Machine, Object, str], Any] = seeded  # return the real object, for a method
    state: Callable[[Any], Any] | None = None  # what differs after a write; without it, each method counts as a write
    reads: Container[str] = ()  # but these
    holder: Callable[[Machine, Object], Object | None] = holder
    argument: Callable[[Machine, Value], Any] = argument_of
    result: Callable[[Machine, Object, str, Any], Value] = lift_result


def run(vm: Machine, shadow: Shadow, name: str, self: Object, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Any:
    """Run a method on the shadow of `self` and return what it gives, a real object.

    Marks the contents as written where they were. Raises, in the program, what the method raises.
    """
    real = shadow.real(vm, self, name)
    given = [shadow.argument(vm, arg) for arg in args]
    named = {key: shadow.argument(vm, arg) for key, arg in kwargs.items()}
    owner = None if name in shadow.reads else shadow.holder(vm, self)
    entity = None if owner is None else vm.entity(owner)
    before = None if entity is None or shadow.state is None else shadow.state(entity.items)
    try:
        return getattr(type(real), name)(real, *given, **named)
    except BufferError:  # views that nobody has any more are still held here
        raise Break("unsupported method", name=name, type=self.pytype.__name__) from None
    except Exception as error:
        raise vm.refused(error) from None
    finally:
        if entity is not None and (shadow.state is None or shadow.state(entity.items) != before):
            vm.effects.items(entity)


def method(shadow: Shadow, name: str) -> Model:
    """Return the model of a method. One that gives its own object gives the value that it was called on."""

    def row(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
        result = run(vm, shadow, name, self, args, kwargs)
        return self if result is vm.entity(self).items else shadow.result(vm, self, name, result)

    return row


def attribute(shadow: Shadow, name: str) -> Model:
    """Return the model of an attribute."""

    def row(vm: Machine, self: Object) -> Value:
        found = run(vm, shadow, "__getattribute__", self, (Known(name),), {})
        return shadow.result(vm, self, name, found)

    return row


def shadows(cls: Any, shadow: Shadow, own: str = "") -> None:
    """Register models of the methods and attributes of a class of C, but of those with rows of their `own`."""
    without = OWN_ROWS.union(own.split())
    for name in dir(cls):
        owner = next(base for base in cls.__mro__ if name in vars(base))
        found = vars(owner)[name]
        if owner is object or name in without:
            continue
        if type(found) in (types.MethodDescriptorType, types.WrapperDescriptorType):
            models(owner, name)(method(shadow, name))
        elif type(found) is types.GetSetDescriptorType:
            models(cls, "." + name)(attribute(shadow, name))

"""Ask Python what it says of operands that no class takes."""

from __future__ import annotations

import collections
import operator
from typing import TYPE_CHECKING, Any

from torchdynamo._native import type_name
from torchdynamo.core.naming import called
from torchdynamo.core.signals import Break, Raised
from torchdynamo.core.value import Known, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

SEQUENCES = (list, tuple, str, collections.deque)
ADDING, REPEATING = (operator.add, operator.iadd), (operator.mul, operator.imul)


def refused_operands(vm: Machine, fn: Any, *operands: Value) -> Raised:
    """Return the TypeError of operands whose classes have no method for `fn`.

    CPython is asked, of objects that stand for them: their classes have the same names, and nothing else.
    """
    refused = refused_sequence(fn, *(each.pytype for each in operands))
    if refused is not None:
        return vm.error(TypeError, refused)
    try:
        fn(*map(standing_for, operands))
    except TypeError as error:
        return vm.refused(error)
    raise Break("unknown call", name=called(fn))


def answered_by_method(vm: Machine, fn: Any, answer: Value, others: list[Value]) -> Value:
    """Return what a method of an operator, called by its name, gives: a sequence's own raises where it leaves an
    operand to its class, instead of saying NotImplemented.

    answer: what its model gives. Raises Raised with the TypeError.
    """
    if answer.__class__ is not Known or answer.obj is not NotImplemented:
        return answer
    if issubclass(fn.__objclass__, SEQUENCES):
        try:
            fn(fn.__objclass__(), *map(standing_for, others))
        except TypeError as error:
            raise vm.refused(error) from None
    return answer


def standing_for(operand: Value) -> Any:
    """Return an object whose class has the names of an operand's, and nothing else."""
    return named_like(operand.pytype)()


def named_like(cls: type, **methods: Any) -> type:
    """Return a class that has the names of another, and only these methods."""
    return type(type_name(cls), (), {"__module__": cls.__module__, "__qualname__": cls.__qualname__, **methods})


def refused_sequence(fn: Any, *sides: type) -> str | None:
    """Return the words in which a sequence refuses to be added or multiplied; None if neither operand is one."""
    kinds = [next((base for base in SEQUENCES if issubclass(side, base)), None) for side in sides]
    if fn in ADDING and kinds[0] is not None:
        name = kinds[0].__name__
        return f'can only concatenate {name} (not "{sides[1].__name__}") to {name}'
    if fn in REPEATING and any(kinds):
        return f"can't multiply sequence by non-int of type {sides[bool(kinds[0])].__name__!r}"
    return None

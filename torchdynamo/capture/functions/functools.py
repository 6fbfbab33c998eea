"""functools: reduce, and which function singledispatch chooses for a class."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import abc
import functools

from torchdynamo.capture.functions.builtins_classes import REGISTRATIONS
from torchdynamo.capture.vm.lookup import guard_bases
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function, polyfill
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.value import Value


class _MISSING:
    """Stand for an argument that is not given. A class, because a class is one constant wherever it is met."""


@polyfill(functools.reduce)
def reduce(function, iterable, initial=_MISSING, /):
    items = iter(iterable)
    if initial is _MISSING:
        for first in items:
            total = first
            break
        else:
            raise TypeError("reduce() of empty iterable with no initial value")
    else:
        total = initial
    for item in items:
        total = function(total, item)
    return total


@function(functools._compose_mro)  # type: ignore[attr-defined]
def compose_mro(vm: Machine, cls: Value, types: Value) -> Value:
    """Return the MRO of a class, with those of `types` inserted whose subclass it counts as by registration."""
    real = vm.known(cls, "class")
    wanted = [vm.known(each, "class") for each in vm.iterate(types)]
    guard_bases(vm, real)
    vm.guard(REGISTRATIONS, "EQUALS_MATCH", abc.get_cache_token())
    vm.of_process["the classes registered with abstract ones"] = None
    return lift(vm, functools._compose_mro(real, wanted))  # type: ignore[attr-defined]

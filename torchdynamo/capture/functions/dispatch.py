"""functools.singledispatch: which function is for a class, its bases and the abstract classes it counts as decide."""

from __future__ import annotations

import abc
import functools
from typing import TYPE_CHECKING

from torchdynamo.capture.functions.instance_checks import REGISTRATIONS
from torchdynamo.capture.vm.lookup import rest_on_bases
from torchdynamo.capture.vm.model import function
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.value import Known, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


@function(abc.get_cache_token)
def cache_token(vm: Machine) -> Value:
    """A number that goes up with every class that is registered with an abstract one."""
    token = abc.get_cache_token()
    vm.guard(REGISTRATIONS, "EQUALS_MATCH", token)
    return Known(token)


@function(functools._compose_mro)  # type: ignore[attr-defined]
def compose_mro(vm: Machine, cls: Value, types: Value) -> Value:
    """The class's order of bases, with those of `types` that it counts as a subclass of."""
    real = vm.known(cls, "class")
    wanted = [vm.known(each, "class") for each in vm.iterate(types)]
    rest_on_bases(vm, real)
    vm.guard(REGISTRATIONS, "EQUALS_MATCH", abc.get_cache_token())
    return lift(vm, functools._compose_mro(real, wanted))  # type: ignore[attr-defined]

"""Make a value of the result of a function without effects: objects in it that can change are new in each call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchdynamo.capture.vm import model
from torchdynamo.capture.vm.iteration import known_steps, make_iterator
from torchdynamo.capture.vm.wrap import CONSTANTS, lift
from torchdynamo.core.value import Known, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def lift_made(vm: Machine, result: Any) -> Value:
    """Return the value of an object that a function without side effects made during the capture."""
    if hasattr(type(result), "__next__"):
        return make_iterator(vm, known_steps(vm, result), iterated_by(result), type(result))
    if type(result) is set:
        return model.BUILD_SET[set](vm, [lift(vm, item) for item in result])
    return lift(vm, result)


def iterated_by(real: Any) -> Value | None:
    """Return what a new iterator goes over, if its `__reduce__` tells."""
    try:
        maker, made_of, *_ = real.__reduce__()
    except TypeError:
        return None
    return Known(made_of[0]) if maker in (iter, reversed) and type(made_of[0]) in CONSTANTS else None

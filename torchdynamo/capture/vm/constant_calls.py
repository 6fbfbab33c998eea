"""Calls of functions whose results the program declares to be constant: with what, and what they gave.

The real function is called while its caller is captured. Another process that uses what was captured calls it as well,
and compares: what is constant in one process may be another constant there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torchdynamo.capture.vm.wrap import CONSTANTS, holds_nan
from torchdynamo.core import marks
from torchdynamo.core.source import Source
from torchdynamo.core.value import Known, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

MARK = "_dynamo_marked_constant"
"""Attribute by which torch.compile's `assume_constant_result` marks a function."""
RESULT = "the result of a function that assume_constant_result names, which is or was given no constant"


class ConstantCall(NamedTuple):
    """A call of a function whose result is declared to be constant. Its arguments are constants."""

    function: Source
    args: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]
    result: Any


def is_declared(function: Any) -> bool:
    """Return whether the program declares that a function always returns the same."""
    return function in marks.CONSTANT or bool(getattr(function, "__dict__", {}).get(MARK))


def note(vm: Machine, fn: Known, args: Sequence[Value], kwargs: Mapping[str, Value], found: Value) -> None:
    """Note a call, for a process that uses this capture; where it cannot be written, that serves this process only.

    A call within a mode that the frame has switched cannot: there it would be made before the frame.
    """
    values = [*args, *kwargs.values(), found]
    constants = [each.obj for each in values if each.__class__ is Known and is_plain(each.obj)]
    level = vm.effects.is_level() and not (vm.modes or vm.devices or vm.modes_off or vm.subclasses_off)
    if fn.source is None or not level or len(constants) < len(values):
        vm.of_process[RESULT] = None
        return
    *given, result = constants
    named = zip(kwargs, given[len(args) :], strict=True)
    vm.constant_calls.append(ConstantCall(fn.source, tuple(given[: len(args)]), tuple(named), result))


def is_plain(obj: Any) -> bool:
    """Return whether an object is a constant that has an equal in each process."""
    return type(obj) in CONSTANTS and not holds_nan(obj)

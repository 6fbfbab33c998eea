"""slice: one of constants is a constant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchdynamo.capture.model import enters
from torchdynamo.capture.signals import Break
from torchdynamo.capture.source import Source
from torchdynamo.capture.value import Known, Value
from torchdynamo.capture.wrap import CONSTANTS

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine


@enters(slice)
def enter(vm: Machine, obj: slice, source: Source) -> Value:
    if any(type(part) not in CONSTANTS for part in (obj.start, obj.stop, obj.step)):
        raise Break("unsupported type", type="slice")
    vm.guard(source, "EQUALS_MATCH", obj)
    return Known(obj, source)

"""Handles of hooks: each is numbered, and looked up by its number in the table of its hooks.

A handle that was there before was most likely made by this very call, before a break. Followed, `remove()` would be
compiled for each number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils.hooks import RemovableHandle

from torchdynamo.capture.heap import MISSING
from torchdynamo.capture.model import function
from torchdynamo.capture.signals import Break
from torchdynamo.capture.value import Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine


@function(RemovableHandle.remove)
def remove(vm: Machine, self: Value) -> Value:
    if self.__class__ is Object and vm.entity(self).real is not MISSING:
        raise Break("unknown call", name="RemovableHandle.remove")
    return vm.inline(Known(RemovableHandle.remove), [self], {})

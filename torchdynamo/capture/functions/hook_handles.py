"""Handles of hooks: each is numbered, and looked up by its number in the table of its hooks.

The count goes on with each call. A number that were a constant would make a version for each, so a hook that the frame
registers gets its number only where it outlives the frame.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from torch.utils.hooks import RemovableHandle

from torchdynamo.capture.functions.tensor_hooks import Registration
from torchdynamo.capture.types.identity import NumberOf
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.model import function, polyfill
from torchdynamo.core.signals import Break
from torchdynamo.core.value import Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


@polyfill(RemovableHandle.__init__)
def initialize(self, hooks_dict, *, extra_dict=None):  # type: ignore[no-untyped-def]
    """Number a handle and remember, weakly, where its hook is."""
    self.hooks_dict_ref = weakref.ref(hooks_dict)
    self.id = numbered(self)
    tables = [extra_dict] if isinstance(extra_dict, dict) else extra_dict if isinstance(extra_dict, list) else []
    self.extra_dict_ref = tuple([weakref.ref(table) for table in tables])


def numbered(handle: RemovableHandle) -> int:
    """Return the number of a new handle."""
    return next_number()


@function(numbered)
def number(vm: Machine, handle: Value) -> Value:
    return vm.new(int, payload=NumberOf(handle, next_number))


def next_number() -> int:
    """Take the next number, as PyTorch does for each handle."""
    taken = RemovableHandle.next_id
    RemovableHandle.next_id += 1
    return taken


@function(RemovableHandle.remove)
def remove(vm: Machine, self: Value) -> Value:
    """Remove a hook. A handle that was there before was most likely made by this very call, before a break: followed,
    `remove()` would be compiled for each number.
    """
    if self.__class__ is Object and vm.entity(self).real is not MISSING:
        raise Break("unknown call", name="RemovableHandle.remove")
    registration = vm.entity(self).payload_if(Registration) if self.__class__ is Object else None
    if registration is None:
        return vm.inline(Known(RemovableHandle.remove), [self], {})
    return registration.remove(vm)

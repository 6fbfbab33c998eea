"""Process state that programs switch: grad mode, autocast. Set for real while capturing, and in the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.amp

from torchdynamo.capture.model import function
from torchdynamo.capture.value import NONE, Known, Value

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine

# setter -> how to read what it sets, from the setter's own arguments
SETTERS: dict[Any, Callable[..., tuple[Any, ...]]] = {
    torch._C._set_grad_enabled: lambda enabled: (torch.is_grad_enabled(),),
    torch.set_autocast_enabled: lambda device, enabled: (device, torch.is_autocast_enabled(device)),
    torch.set_autocast_dtype: lambda device, dtype: (device, torch.get_autocast_dtype(device)),
    torch.set_autocast_cache_enabled: lambda enabled: (torch.is_autocast_cache_enabled(),),
}


def setter(fn: Any, read: Callable[..., tuple[Any, ...]]) -> None:
    def row(vm: Machine, *args: Value) -> Value:
        real = [vm.concretely(arg) for arg in args]
        before = read(*real)
        vm.restore.setdefault((fn, before[:-1]), lambda: fn(*before))
        vm.entry_state.setdefault((fn, before[:-1]), before)
        fn(*real)
        vm.state_node(fn, tuple(real))
        vm.exit_state[fn, before[:-1]] = tuple(real)
        return NONE

    function(fn)(row)


for _fn, _read in SETTERS.items():
    setter(_fn, _read)


@function(torch.autocast_increment_nesting)
def increment_nesting(vm: Machine) -> Value:
    depth = torch.autocast_increment_nesting()
    vm.restore.setdefault((id(vm), depth), torch.autocast_decrement_nesting)
    return Known(depth)


@function(torch.autocast_decrement_nesting)
def decrement_nesting(vm: Machine) -> Value:
    depth = torch.autocast_decrement_nesting()
    vm.restore.pop((id(vm), depth + 1), None)
    return Known(depth)


@function(torch.clear_autocast_cache, torch._C._log_api_usage_once)
def nothing(vm: Machine, *args: Value) -> Value:
    """The cache is only a cache; the log is not the program's."""
    return NONE

"""`zero_grad()`: gradients are let go of, and whether there were any makes no difference.

Followed as it is written it would ask each parameter, so a first step, which finds no gradients, would be compiled for
itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.nn import Module
from torch.optim import Optimizer

from torchdynamo.capture.vm.model import function
from torchdynamo.core.value import NONE, TRUE, Known, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def optimized(optimizer: Any) -> Any:
    return [p for group in optimizer.param_groups for p in group["params"]]


def parameters(module: Any) -> Any:
    """None where `zero_grad` has something to say."""
    return None if getattr(module, "_is_replica", False) else list(module.parameters())


def letting_go(method: Any, of: Callable[[Any], Any]) -> None:
    """Where gradients become zeros instead, or classes of tensors want to be asked, the method is followed."""

    def row(vm: Machine, self: Value, set_to_none: Value = TRUE) -> Value:
        tensors = vm.call(Known(of), [self], {}) if vm.truth(set_to_none) else NONE
        if vm.watching or tensors.pytype is not list:
            return vm.inline(Known(method), [self, set_to_none], {})
        for tensor in vm.iterate(tensors):
            vm.setattr(tensor, "grad", NONE)
        return NONE

    function(method)(row)


letting_go(inspect.unwrap(Optimizer.zero_grad), optimized)
letting_go(Module.zero_grad, parameters)

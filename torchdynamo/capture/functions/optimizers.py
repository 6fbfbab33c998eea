"""What torch's optimizers do besides computing with tensors: they read their step counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.optim.optimizer import _get_value

from torchdynamo.capture import symbols
from torchdynamo.capture.model import function
from torchdynamo.capture.value import Graphed, Value

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine


@function(_get_value)
def get_value(vm: Machine, x: Value) -> Value:
    """`x.item()`. Nothing is decided by it, only computed with: it may be a number of the graph, always."""
    if x.__class__ is not Graphed or not x.fake.is_floating_point():
        return vm.call_method(x, "item") if x.__class__ is Graphed else x
    return symbols.opaque(vm, torch.Tensor.item, [x], float)

"""torch's own helpers that only look at their arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.overrides

from torchdynamo.capture.model import function
from torchdynamo.capture.value import FALSE, Value, boolean

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine


@function(torch._C._has_torch_function, torch._C._has_torch_function_unary, torch._C._has_torch_function_variadic)
def has_torch_function(vm: Machine, *args: Value) -> Value:
    """Tensors in a graph are plain ones; a mode that would intercept calls is guarded against."""
    return FALSE


def is_tensor(vm: Machine, obj: Any) -> Value:
    return boolean(issubclass(obj.pytype, torch.Tensor))


function(torch.is_tensor)(is_tensor)

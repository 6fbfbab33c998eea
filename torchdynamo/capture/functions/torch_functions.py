"""torch's own helpers that only look at their arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.overrides

from torchdynamo.capture.vm.model import function
from torchdynamo.core.value import Value, boolean

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def is_tensor(vm: Machine, obj: Any) -> Value:
    return boolean(issubclass(obj.pytype, torch.Tensor))


function(torch.is_tensor)(is_tensor)

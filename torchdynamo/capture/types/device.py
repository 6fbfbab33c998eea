"""torch.device as a context. What it does to the functions that make tensors is in arguments.py."""

from __future__ import annotations

import torch

from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import models
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, Value

ENTER = torch.device.__enter__


@models(torch.device, "__enter__")
def enter(vm: Machine, self: Value) -> Value:
    """Open `with torch.device(d):`. The code after a graph break inside runs with it open for real."""
    device = vm.known(self, "device")
    vm.devices.append(device)
    vm.effects.switch((ENTER, len(vm.devices)), (), (device,), None)
    return self


@models(torch.device, "__exit__")
def leave(vm: Machine, self: Value, *error: Value) -> Value:
    if not vm.devices:  # it was open when the frame began
        raise Break("unknown context manager", type="torch.device")
    vm.effects.switch_back((ENTER, len(vm.devices)))
    vm.devices.pop()
    return NONE

"""Facts of the machine and the build: they hold as long as the process lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.accelerator
import torch.backends.mps
import torch.cuda

from torchdynamo.capture.vm.model import function
from torchdynamo.core.value import Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def fact(fn: Any) -> None:
    def row(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
        return vm.run_pure(fn, list(args), dict(kwargs))

    function(fn)(row)


for _fn in (
    *(torch.cuda.is_available, torch.cuda.device_count, torch.cuda.is_bf16_supported),
    *(torch.cuda.get_device_capability, torch.cuda.get_device_name, torch.cuda.get_arch_list),
    *(torch.xpu.is_available, torch.xpu.device_count, torch.backends.mps.is_available, torch.backends.mps.is_built),
    *(torch.backends.cuda.is_built, torch.backends.mkldnn.is_available, torch.backends.cudnn.is_available),
    *(torch.accelerator.current_accelerator, torch.accelerator.device_count, torch.accelerator.is_available),
    *(torch._C._infer_size,),  # of two shapes
    *(torch.backends.openmp.is_available, torch.distributed.is_available, torch.cuda._is_compiled),
):
    fact(_fn)

"""torch.optim: step counters, fused updates, and gradients that are let go of."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import Module
from torch.optim.optimizer import Optimizer, _get_value

from torchdynamo.capture.torch import symbols
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function, polyfill
from torchdynamo.core.policy import FUSED_UPDATES
from torchdynamo.core.value import NONE, TRUE, Known, Symbol, TensorNode, Value


@function(_get_value)
def get_value(vm: Machine, x: Value) -> Value:
    """Return `x.item()` as a symbol. Optimizers decide nothing by it, so it may be one under any setting."""
    if x.__class__ is not TensorNode or not x.fake.is_floating_point():
        return vm.call_method(x, "item") if x.__class__ is TensorNode else x
    return symbols.opaque(vm, torch.Tensor.item, [x], float)


def skip_check(vm: Machine, self: Value) -> Value:
    """Do nothing: the warning is about CUDA graphs being recorded, which none is during a capture."""
    return NONE


for _name in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):
    if hasattr(Optimizer, _name):
        function(getattr(Optimizer, _name))(skip_check)


def model_fused(fn: Any) -> None:
    """Model an update in one kernel. A learning rate that was read from a tensor is passed as that tensor."""

    def row(vm: Machine, *args: Value, **kwargs: Value) -> Value:
        rate = kwargs.get("lr", NONE)
        if isinstance(rate, Symbol) and rate.node.target is torch.Tensor.item:
            (box,) = rate.node.all_input_nodes
            kwargs["lr"] = TensorNode(box, box.meta["example_value"], torch.Tensor)
        return vm.emit("call_function", fn, list(args), kwargs)

    function(fn)(row)


for _fn in FUSED_UPDATES:
    model_fused(_fn)


@polyfill(torch._C._group_tensors_by_device_and_dtype)
def group_tensors(lists: list[list[Any]], with_indices: bool = False) -> dict[Any, Any]:
    """Group tensors by device and dtype of those in the first list; an empty list is one in every group."""
    groups: dict[Any, Any] = {}
    for index, first in enumerate(lists[0]):
        key = (first.device, first.dtype)
        if key not in groups:
            groups[key] = ([[] for _ in lists], [])
        for own, each in zip(groups[key][0], lists):
            if each:
                own.append(each[index])
        if with_indices:
            groups[key][1].append(index)
    return groups


# -- zero_grad, of modules too ----------------------------------------------------------------------------------------
def parameters_of_optimizer(optimizer: Any) -> Any:
    """Return all parameters of an optimizer."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def parameters_of_module(module: Any) -> Any:
    """Return the parameters of a module; None for a replica, about which `zero_grad` warns."""
    return None if getattr(module, "_is_replica", False) else list(module.parameters())


def model_zero_grad(method: Any, of: Callable[[Any], Any]) -> None:
    """Model `zero_grad`. Where gradients become zeros instead, or tensor subclasses may be asked, it is inlined."""

    def row(vm: Machine, self: Value, set_to_none: Value = TRUE) -> Value:
        tensors = vm.call(Known(of), [self], {}) if vm.truth(set_to_none) else NONE
        if vm.watching or tensors.pytype is not list:
            return vm.inline(Known(method), [self, set_to_none], {})
        for tensor in vm.iterate(tensors):
            vm.setattr(tensor, "grad", NONE)
        return NONE

    function(method)(row)


model_zero_grad(inspect.unwrap(Optimizer.zero_grad), parameters_of_optimizer)
model_zero_grad(Module.zero_grad, parameters_of_module)

"""Operators that read from a tensor how many results, or classes, there are: the numbers are read before.

Where numbers may not be read from tensors, reading them ends the graph, and the message says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torchdynamo.capture.vm.model import function
from torchdynamo.core.value import Known, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def emitted(vm: Machine, fn: Any, args: list[Value], **kwargs: Value) -> Value:
    made: Value = vm.emit("call_function", fn, args, kwargs)
    return made


@function(torch.tensor_split, torch.Tensor.tensor_split)
def tensor_split(
    vm: Machine, input: Value, by: Value | None = None, dim: Value | None = None, **kwargs: Value
) -> Value:
    for name in ("tensor_indices_or_sections", "indices", "sections"):
        by = kwargs.pop(name, by)
    if by.__class__ is TensorNode:
        by = vm.call_method(by, "tolist")
    given = [input, *(each for each in (by, dim) if each is not None)]
    return emitted(vm, torch.tensor_split, given, **kwargs)


@function(torch.nn.functional.one_hot)
def one_hot(vm: Machine, tensor: Value, num_classes: Value | None = None) -> Value:
    """As many classes as the largest index says, where nobody does: a number that torch does not take there."""
    if num_classes is not None and not (num_classes.__class__ is Known and num_classes.obj == -1):
        return emitted(vm, torch.nn.functional.one_hot, [tensor, num_classes])
    least, largest = (vm.call_method(vm.call_method(tensor, name), "item") for name in ("min", "max"))
    vm.call(Known(torch._check), [vm.compare(">=", least, Known(0))], {})
    vm.call(Known(torch._check), [vm.compare(">=", largest, Known(0))], {})  # which does not follow, to torch
    classes = emitted(vm, torch.arange, [vm.binary("+", largest, Known(1))], device=vm.getattr(tensor, "device"))
    ones = vm.binary("==", vm.call_method(tensor, "unsqueeze", Known(-1)), classes)
    return vm.call_method(ones, "to", Known(torch.int64))

"""`torch.Tensor([1.0])`, `torch.LongTensor(2, 3)`, `x.type(torch.FloatTensor)`: tensors made by calling a class.

They have the class's dtype (`torch.Tensor`: the default one) and lie on the CPU, whatever the device of the context is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torchdynamo.capture.vm.model import FUNCTIONS, Model, function, models
from torchdynamo.core.naming import called
from torchdynamo.core.signals import Break
from torchdynamo.core.value import Known, Value
from torchdynamo.graph.numpy_nodes import np

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

CPU = Known(torch.device("cpu"))
CLASSES = [each for each in torch._tensor_classes if each.__module__ == "torch"]
HOLDING: dict[type, Any] = {list: torch.tensor, tuple: torch.tensor, range: torch.tensor}
if np is not None:
    HOLDING[np.ndarray] = torch.as_tensor  # shares the array's memory where the dtype is the same


def maker(cls: Any) -> Model:
    def row(vm: Machine, *args: Value, device: Value = CPU) -> Value:
        """Integers are sizes; one sequence is what the tensor holds."""
        options = {"dtype": dtype_of(vm, cls), "device": device}
        kinds = [each.pytype for each in args]
        if torch._C._get_default_device() != "cpu":
            raise Break("unknown call", name=called(cls))
        if all(kind is int for kind in kinds):
            return vm.emit("call_function", torch.empty, [*args] or [Known(0)], options)
        if len(args) == 1 and kinds[0] is torch.Size:
            return vm.emit("call_function", torch.empty, [*args], options)
        way = HOLDING.get(kinds[0]) if len(args) == 1 else None
        if way is None:
            raise Break("unknown call", name=called(cls))
        given = FUNCTIONS.get(id(way))
        return given(vm, *args, **options) if given else vm.emit("call_function", way, [*args], options)

    return row


def dtype_of(vm: Machine, cls: Any) -> Value:
    return FUNCTIONS[id(torch.get_default_dtype)](vm) if cls is torch.Tensor else Known(cls.dtype)


@models(torch._C.TensorBase, "type")
def of_type(vm: Machine, self: Value, /, *args: Value, **kwargs: Value) -> Value:
    """The class of what lies on the CPU says both; a dtype leaves the tensor where it is."""
    cls = args[0].obj if args and args[0].__class__ is Known else None
    if cls in CLASSES and not kwargs:
        return vm.emit("call_method", "to", [self, CPU, Known(cls.dtype), *args[1:]], {})
    return vm.emit("call_method", "type", [self, *args], kwargs)


for _cls in (torch.Tensor, *CLASSES):
    function(_cls)(maker(_cls))

"""Make tensors of lists with tensors in them: `torch.tensor([loss.max(), 1])`.

PyTorch asks each tensor for its number, in Python, which a graph need not: the numbers are stacked where they are. That
is the same for what no conversion can make another number, or refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torchdynamo.capture.torch import histories
from torchdynamo.core.policy import OWN
from torchdynamo.core.value import Known, Object, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

INTEGERS = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
OF_PYTHON: dict[type, torch.dtype] = {bool: torch.bool, int: torch.int64}
CPU = torch.device("cpu")


def stacked(vm: Machine, data: Value, kwargs: dict[str, Value]) -> Value | None:
    """Return `torch.tensor(data)` of tensors without dimensions and constants in lists; None for other data, which a
    tensor alone is, too.
    """
    numbers: list[Value] = []
    shape = collect(vm, data, numbers)
    options = {name: value.obj for name, value in kwargs.items() if value.__class__ is Known}
    plain = options.keys() == kwargs.keys() and options.keys() <= {"dtype", "device"}
    tensors = any(number.__class__ is TensorNode for number in numbers)
    if not shape or not tensors or not plain or is_told_otherwise(vm):
        return None
    kinds = [dtype_of(vm, number) for number in numbers]
    known = [kind for kind in kinds if kind is not None]
    wanted: Any = promoted(known) if options.get("dtype") is None else options["dtype"]
    device = device_of(options.get("device"))
    if device is None or len(known) < len(kinds) or not all(is_exact(kind, wanted) for kind in known):
        return None
    made = [as_element(vm, number, wanted, device) for number in numbers]
    for size in reversed(shape):  # a view of a flat stack would have it as its base
        rows = [vm.new(list, made[start : start + size]) for start in range(0, len(made), size)]
        made = [vm.emit("call_function", OWN.stack, [row], {}) for row in rows]
    return made[0]


def device_of(given: Any) -> torch.device | None:
    """Return the device that an argument means; None where it means none."""
    try:
        return CPU if given is None else torch.device(given)
    except (RuntimeError, TypeError):  # as eager says
        return None


def is_told_otherwise(vm: Machine) -> bool:
    """Return whether a mode, a device of the block or a transform has a say in how tensors are made."""
    elsewhere = vm.devices or torch._C._get_default_device() != "cpu"
    return bool(vm.watching or elsewhere or torch._C._functorch.peek_interpreter_stack() is not None)


def collect(vm: Machine, value: Value, numbers: list[Value]) -> tuple[int, ...] | None:
    """Add the numbers in nested lists, in order, and return their shape; None where that is none."""
    if not (value.__class__ is Object and value.pytype in (list, tuple)):
        numbers.append(value)
        return ()
    items = list(vm.iterate(value))
    shapes = {collect(vm, item, numbers) for item in items}
    inner = shapes.pop() if len(shapes) == 1 else None
    return None if inner is None else (len(items), *inner)


def dtype_of(vm: Machine, number: Value) -> torch.dtype | None:
    """Return the dtype of a tensor without dimensions, or of a constant; None where it is something else."""
    if isinstance(number, TensorNode):
        fake, followed = number.fake, number.fake.requires_grad or histories.is_unknown(vm, number)
        plain = number.pytype is torch.Tensor and not followed
        there = fake.layout is torch.strided and fake.device.type != "meta"
        return fake.dtype if plain and there and fake.dim() == 0 else None
    if number.__class__ is Known and number.pytype in (bool, int, float):
        return torch.get_default_dtype() if number.pytype is float else OF_PYTHON[number.pytype]
    return None


def promoted(kinds: list[torch.dtype]) -> torch.dtype | None:
    wanted = kinds[0] if kinds else None
    for kind in kinds:
        wanted = torch.promote_types(wanted, kind)  # type: ignore[arg-type]
    return wanted


def is_exact(kind: torch.dtype, wanted: Any) -> bool:
    """Return whether all numbers of a dtype become the same ones of another as by way of Python's."""
    if wanted in (torch.float32, torch.float64):  # by way of a double
        return kind in INTEGERS or kind in FLOATS
    return kind in INTEGERS if wanted is torch.int64 else kind is wanted and kind in INTEGERS | FLOATS


def as_element(vm: Machine, number: Value, wanted: torch.dtype, device: torch.device) -> Value:
    """Return a number as a tensor without dimensions.

    A tensor takes the steps that its number would take by way of Python, whose floats are doubles.
    """
    if not isinstance(number, TensorNode):
        return vm.emit("call_function", OWN.tensor, [number], {"dtype": Known(wanted), "device": Known(device)})
    kind = number.fake.dtype
    steps: list[Any] = [] if kind is wanted else [wanted]
    if steps and kind is not torch.float64 and wanted not in (torch.float64, torch.int64):
        steps.insert(0, torch.float64)
    if number.fake.device != device:
        steps.append(device)
    made: Value = number
    for step in steps:
        made = vm.call_method(made, "to", Known(step))
    return made

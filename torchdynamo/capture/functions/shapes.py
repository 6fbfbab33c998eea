"""torch.broadcast_shapes of sizes that vary: those that are alike now are taken to be alike, and none to be 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from torchdynamo.capture.torch.symbols import unknown
from torchdynamo.capture.vm.model import function
from torchdynamo.core.value import Known, Object, Symbol, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

ONE = Known(1)


@function(torch.broadcast_shapes)
def broadcast_shapes(vm: Machine, /, *shapes: Value, **kwargs: Value) -> Value:
    given = [sizes_of(vm, shape) for shape in shapes]
    varying = any(isinstance(size, Symbol) for sizes in given if sizes for size in sizes)
    if varying and not kwargs and all(sizes is not None for sizes in given):
        found = broadcast(vm, [sizes for sizes in given if sizes is not None])
        if found is not None:
            return vm.new(torch.Size, found)
    return vm.inline(Known(torch.broadcast_shapes), list(shapes), dict(kwargs))


def sizes_of(vm: Machine, shape: Value) -> list[Value] | None:
    """A shape's sizes, if these are numbers whose order is known."""
    constant = shape.__class__ is Known and shape.pytype in (tuple, torch.Size)
    made = shape.__class__ is Object and shape.pytype in (tuple, list, torch.Size)
    sizes: list[Value] = list(vm.iterate(shape)) if constant or made else [shape]
    return sizes if all(map(is_size, sizes)) else None


def is_size(value: Value) -> bool:
    return isinstance(value, Symbol) or (value.__class__ is Known and type(value.obj) is int and value.obj >= 0)


def broadcast(vm: Machine, shapes: list[list[Value]]) -> list[Value] | None:
    """The common shape; None where somebody has to say what does not fit, or which size is 1."""
    if any(unknown(vm, size) for sizes in shapes for size in sizes):
        return None
    found: list[Value] = []
    for at in range(1, 1 + max(map(len, shapes))):
        common: Value = ONE
        for size in (sizes[-at] for sizes in shapes if len(sizes) >= at):
            if is_one(common):
                common = size
            elif not is_one(size) and not alike(vm, common, size):
                return None
        found.insert(0, common)
    return found


def is_one(value: Value) -> bool:
    return value.__class__ is Known and value.obj == 1


def alike(vm: Machine, a: Value, b: Value) -> bool:
    return vm.truth(vm.binary("==", a, b))

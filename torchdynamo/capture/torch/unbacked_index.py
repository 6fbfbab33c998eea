"""Index tensors by unbacked integers: `x[n]`, where n is read from a tensor, or is one itself.

torch's own indexing takes no such number for an integer; `Tensor.select` does, and is what indexing is made of. It
gives a view, so what is left of the index is read from that, or written to it. The methods stand in the graph, because
libraries put functions of their own in the place of `torch.select`, which indexing does not call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from torchdynamo.capture.torch import symbols
from torchdynamo.core.value import Known, Object, Symbol, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


EVERYTHING = Known(slice(None))


def picked(vm: Machine, tensor: TensorNode, key: Value) -> tuple[Value, Value | None]:
    """Return a view of the tensor in which unknown integers of an index have been done, and the rest of the index.

    The rest is None if there is none.
    """
    parts: list[Value]
    rest: list[Value]
    view: Value
    if key.__class__ is Symbol or key.__class__ is TensorNode:
        parts = [key]
    elif key.__class__ is Object and key.pytype is tuple:
        parts = list(vm.iterate(key))
    else:
        return tensor, key
    parts = [symbols.opaque(vm, torch.Tensor.item, [part], int) if is_number(part) else part for part in parts]
    unknown = [index for index, part in enumerate(parts) if part.pytype is int and part.__class__ is Symbol]
    if not unknown or any(part.pytype is list for part in parts):
        return tensor, key
    with vm.builder.numbers.values_allowed():
        view, rest = tensor, []
        dim = 0
        for index, part in enumerate(parts):
            if index in unknown:
                view = vm.emit("call_method", "select", [view, Known(dim), part], {})
            elif part.pytype is type(None):
                view = vm.emit("call_method", "unsqueeze", [view, Known(dim)], {})
                rest.append(EVERYTHING)
                dim += 1
            else:
                rest.append(part)
                dim += tensor.fake.dim() - sum(map(width, parts)) if is_ellipsis(part) else width(part)
    return view, vm.make_tuple(rest) if rest else None


def width(part: Value) -> int:
    """Return how many dimensions a part of an index is about."""
    if part.__class__ is TensorNode:
        return part.fake.dim() if part.fake.dtype in (torch.bool, torch.uint8) else 1
    return 0 if part.pytype in (type(None), bool) or is_ellipsis(part) else 1


def is_number(part: Value) -> bool:
    """Return whether an index is a tensor without dimensions, which torch asks for its integer."""
    if part.__class__ is not TensorNode or part.fake.dim() > 0 or is_batched(part.fake):
        return False
    dtype = part.fake.dtype
    return not (dtype.is_floating_point or dtype.is_complex or dtype in (torch.bool, torch.uint8))


def is_batched(tensor: torch.Tensor) -> bool:
    """Return whether a tensor stands for one number of each sample under `vmap`."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


def is_ellipsis(part: Value) -> bool:
    return part.__class__ is Known and part.obj is Ellipsis

"""Inputs whose sizes may be others in the next call: their fake tensors, and where the numbers come from.

A tensor's size becomes a number of its own, and strides are said by sizes where they are products of them, as in
contiguous memory; a stride with a gap stays what it is, unless it has been seen to vary.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from torchdynamo.core.source import Source
from torchdynamo.graph import torch_compat
from torchdynamo.graph.numbers import Numbers

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

_KEY = "torchdynamo_sizes"


class SizeLayout(NamedTuple):
    """Sizes and strides of an input as it comes in: ints, and numbers of the graph."""

    size: tuple[Any, ...]
    stride: tuple[Any, ...]


def layout(
    numbers: Numbers,
    tensor: torch.Tensor,
    source: Source,
    sizes: Mapping[int, tuple[int, int, bool]],
    strides: Collection[int],
) -> SizeLayout:
    """Return a number for each of these sizes, and for each of these strides that no product of sizes explains."""
    size = [
        numbers.at_entry(length, Source("size", source, dim), *sizes[dim]) if dim in sizes else length
        for dim, length in enumerate(tensor.shape)
    ]

    def gap(dim: int) -> Any:
        real = tensor.stride(dim)
        return numbers.at_entry(real, Source("stride", source, dim), least=0) if dim in strides else real

    return SizeLayout(tuple(size), tuple(products(size, tensor, gap)))


def products(size: Sequence[Any], tensor: torch.Tensor, gap: Callable[[int], Any]) -> list[Any]:
    """Return strides, from the innermost dimension outwards. Where there is one element, or none, they may be any."""
    if tensor.is_contiguous():
        stride = in_order(size, tensor, gap, True)
        if all(type(step) is not int or step == real for step, real in zip(stride, tensor.stride(), strict=True)):
            return stride
    return in_order(size, tensor, gap, False)


def in_order(size: Sequence[Any], tensor: torch.Tensor, gap: Callable[[int], Any], contiguous: bool) -> list[Any]:
    """Return strides that say the larger one by the smaller one; of contiguous memory, by the order of dimensions."""
    order = list(reversed(range(tensor.dim())))
    if not contiguous:
        order.sort(key=lambda dim: (tensor.stride(dim), -dim))
    stride: list[Any] = [0] * tensor.dim()
    step, real = 1, 1
    for dim in order:
        if not contiguous and tensor.stride(dim) != real:
            step, real = gap(dim), tensor.stride(dim)
        stride[dim] = step
        if real:
            step, real = step * size[dim], real * tensor.shape[dim]
    return stride


def explained(tensor: torch.Tensor) -> frozenset[int]:
    """Return the dimensions whose stride is a product of sizes."""
    gaps: set[int] = set()

    def gap(dim: int) -> int:
        gaps.add(dim)
        return tensor.stride(dim)

    products(tuple(tensor.shape), tensor, gap)
    return frozenset(range(tensor.dim())) - gaps


def can_vary(tensor: torch.Tensor) -> bool:
    """Return whether a fake tensor can be made from sizes and strides alone."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and not torch._C._functorch.is_functorch_wrapped_tensor(
        tensor
    )
    return plain and not (tensor.is_conj() or tensor.is_neg())


def stand_in(mode: FakeTensorMode, tensor: torch.Tensor, shape: SizeLayout) -> torch.Tensor:
    """Return a tensor of the fake tensors' world like this one, but for its sizes."""
    inference = tensor.is_inference()
    with torch.inference_mode(inference), contextlib.nullcontext() if inference else torch.enable_grad(), mode:
        fake = torch.empty_strided(shape.size, shape.stride, dtype=tensor.dtype, device=tensor.device)
        if inference:
            return torch.nn.Parameter(fake, False) if type(tensor) is torch.nn.Parameter else fake
        if type(tensor) is torch.nn.Parameter:
            return torch.nn.Parameter(fake, tensor.requires_grad)
        fake.requires_grad_(tensor.requires_grad)
        return fake if tensor.is_leaf else fake.view_as(fake)


class Sizes(NamedTuple):
    """What a backend that takes such graphs has to know: in the graph module's `meta`."""

    numbers: Numbers
    layouts: dict[str, SizeLayout]  # by placeholder


def note_sizes(gm: torch.fx.GraphModule, numbers: Numbers, layouts: dict[str, SizeLayout]) -> None:
    """Keep them with the graph, if any of its inputs may vary."""
    if numbers.entries:
        gm.meta[_KEY] = Sizes(numbers, layouts)


def sizes_of(gm: torch.fx.GraphModule) -> Sizes | None:
    """Return sizes and strides that may vary; None where all inputs of the graph are as they were."""
    known = gm.meta.get(_KEY)
    return known if isinstance(known, Sizes) else None


def fakes_for(gm: torch.fx.GraphModule, inputs: Sequence[Any], mode: FakeTensorMode, sizes: Sizes | None) -> list[Any]:
    """Return the inputs as a tracer wants them: numbers as symbols, and a fake tensor for each tensor with one in its
    sizes.
    """
    made: list[Any] = []
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True):
        known = None if sizes is None else sizes.layouts.get(node.name)
        if known is not None:
            made.append(stand_in(mode, value, known))
        elif isinstance(value, torch.Tensor):
            made.append(torch_compat.static_fake(mode, value))
        else:
            made.append(node.meta["example_value"])
    return made

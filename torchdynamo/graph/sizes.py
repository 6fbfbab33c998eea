"""Inputs with dynamic sizes: their fake tensors, and the sources of their symbols.

Each dynamic size becomes a symbol, and strides are products of sizes where they are such products now, as in contiguous
memory. A stride with a gap is a constant, unless it has been seen to vary.
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
    """Sizes and strides of an input: ints and symbols."""

    size: tuple[Any, ...]
    stride: tuple[Any, ...]


class Extents(NamedTuple):
    """Dimensions of a tensor whose size may change between calls, with bounds, and those whose stride may."""

    sizes: Mapping[int, tuple[int, int, bool]]
    strides: Collection[int]


class InnerLayouts(NamedTuple):
    """Sizes and strides of tensors inside of a nested tensor, by name; of no more than the tensors that vary."""

    parts: dict[str, SizeLayout]


def layout_of_input(
    numbers: Numbers,
    tensor: torch.Tensor,
    source: Source,
    varying: Extents,
    parts: Mapping[str, tuple[Source, Extents]],
) -> SizeLayout | InnerLayouts | None:
    """Return the layout of an input some of whose sizes vary, or of `parts` of a wrapper that do; None if none do."""
    if parts:
        inside: Any = tensor
        return InnerLayouts(
            {name: layout(numbers, getattr(inside, name), place, *each) for name, (place, each) in parts.items()}
        )
    return layout(numbers, tensor, source, *varying) if varying.sizes and can_vary(tensor) else None


def layout(
    numbers: Numbers,
    tensor: torch.Tensor,
    source: Source,
    sizes: Mapping[int, tuple[int, int, bool]],
    strides: Collection[int],
) -> SizeLayout:
    """Return the sizes and strides of an input, with new symbols for those that are dynamic.

    sizes: dimension -> (lower bound, upper bound, blind). strides: dimensions whose stride varies; only those that are
    no product of sizes become symbols.
    """
    size = [
        numbers.at_entry(length, Source("size", source, dim), *sizes[dim]) if dim in sizes else length
        for dim, length in enumerate(tensor.shape)
    ]

    def gap(dim: int) -> Any:
        real = tensor.stride(dim)
        return numbers.at_entry(real, Source("stride", source, dim), least=0) if dim in strides else real

    return SizeLayout(tuple(size), tuple(products(size, tensor, gap)))


def products(size: Sequence[Any], tensor: torch.Tensor, gap: Callable[[int], Any]) -> list[Any]:
    """Return strides as products of sizes, from the innermost dimension outwards.

    With one element, or none, a tensor's strides are arbitrary, and need not be such products.
    """
    if tensor.is_contiguous():
        stride = in_order(size, tensor, gap, True)
        if all(type(step) is not int or step == real for step, real in zip(stride, tensor.stride(), strict=True)):
            return stride
    return in_order(size, tensor, gap, False)


def in_order(size: Sequence[Any], tensor: torch.Tensor, gap: Callable[[int], Any], contiguous: bool) -> list[Any]:
    """Return strides, each a multiple of the next smaller one; if `contiguous`, in the order of dimensions."""
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


def wrapper_with_sizes(mode: FakeTensorMode, wrapper: Any, shapes: InnerLayouts) -> torch.Tensor:
    """Return the fake tensor of a nested tensor, with other sizes inside. Its ragged size becomes a symbol."""
    names, context = wrapper.__tensor_flatten__()
    inside: dict[str, Any] = {}
    for name in names:
        part, shape = getattr(wrapper, name), shapes.parts.get(name)
        inside[name] = torch_compat.static_fake(mode, part) if shape is None else fake_with_sizes(mode, part, shape)
    with mode:
        size = tuple([ragged_size(mode, each) if isinstance(each, torch.SymInt) else each for each in wrapper.shape])
        made: torch.Tensor = type(wrapper).__tensor_unflatten__(inside, context, size, wrapper.stride())
    return made


def ragged_size(mode: Any, size: torch.SymInt) -> Any:
    """Return the symbol for a ragged size in a fake mode: one for each."""
    known = mode.__dict__.setdefault("ragged_sizes", {})
    number = size.node.nested_int()
    if number not in known:
        known[number] = mode.create_symbolic_nested_int(nt_tensor_id=number)
    return known[number]


def fake_with_sizes(mode: FakeTensorMode, tensor: torch.Tensor, shape: SizeLayout | InnerLayouts) -> torch.Tensor:
    """Return a fake tensor like this tensor, with other sizes and strides."""
    if isinstance(shape, InnerLayouts):
        return wrapper_with_sizes(mode, tensor, shape)
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
    """Symbols and layouts of a graph's inputs, for backends; kept in the graph module's `meta`."""

    numbers: Numbers
    layouts: dict[str, SizeLayout]  # placeholder -> its sizes and strides
    inside: dict[str, InnerLayouts]  # placeholder -> those of tensors inside of a nested tensor


def note_sizes(gm: torch.fx.GraphModule, numbers: Numbers, layouts: Mapping[str, SizeLayout | InnerLayouts]) -> None:
    """Store the symbols and layouts with the graph, if there are symbols at entry."""
    if numbers.entries:
        plain = {name: each for name, each in layouts.items() if isinstance(each, SizeLayout)}
        inside = {name: each for name, each in layouts.items() if isinstance(each, InnerLayouts)}
        gm.meta[_KEY] = Sizes(numbers, plain, inside)


def sizes_of(gm: torch.fx.GraphModule) -> Sizes | None:
    """Return the symbols and layouts of a graph; None if all of its inputs have constant sizes."""
    known = gm.meta.get(_KEY)
    return known if isinstance(known, Sizes) else None


def fakes_for(gm: torch.fx.GraphModule, inputs: Sequence[Any], mode: FakeTensorMode, sizes: Sizes | None) -> list[Any]:
    """Return the inputs as a tracer wants them: numbers as symbols, a fake tensor for each tensor."""
    made: list[Any] = []
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True):
        known = None if sizes is None else sizes.layouts.get(node.name) or sizes.inside.get(node.name)
        if known is not None:
            made.append(fake_with_sizes(mode, value, known))
        elif isinstance(value, torch.Tensor):
            made.append(torch_compat.static_fake(mode, value))
        else:
            made.append(node.meta["example_value"])
    return made

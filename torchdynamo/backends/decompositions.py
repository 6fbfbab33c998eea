"""Decompose operators where Inductor's own decompositions differ from eager at the edges of numbers.

There is one row per operator. A function that returns NotImplemented leaves the case to Inductor.

- Floor division and remainder of floats with infinities and zeros: in Inductor `5 % inf` is nan, `inf // 1` is inf.
- On a CPU, Inductor computes `expm1` as `exp(x) - 1`, which is 0 for small numbers. ELU keeps that quicker form, where
  the difference hardly counts.
- Eager computes `x ** -0.5` as a root.
- `index_select`, `index_add` and `index_copy` refuse negative indices in eager; Inductor counts them from the end. On a
  CPU a negative index is replaced by one that is too large, which kernels check: they raise, and the graph runs again
  in eager, which raises the right error. `index_fill` does count from the end; Inductor decomposes it to `index_copy`.
- `index_put` broadcasts values over the elements it writes. With dynamic shapes Inductor's loop makes no guard for
  that, and would read past the end of the values.
- `frac` of -0.0 is 0.0 in eager; an older Inductor keeps the sign.
- The zero tensors that forward-mode derivatives begin with have no memory, and Inductor would reuse their address.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torchdynamo.graph import torch_compat

aten = torch.ops.aten
Number = torch.Tensor | int | float
MASKS = (torch.bool, torch.uint8)


def floats(a: Number, b: Number) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return both operands as tensors of the floating-point dtype they promote to; None if that is not a float."""
    dtype = torch.result_type(a, b)
    if not dtype.is_floating_point:
        return None
    device = next(each.device for each in (a, b) if isinstance(each, torch.Tensor))
    one, other = (
        each.to(dtype) if isinstance(each, torch.Tensor) else torch.scalar_tensor(each, dtype=dtype, device=device)
        for each in (a, b)
    )
    return one, other


def signs_differ(rest: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a mask of the nonzero remainders whose sign differs from the divisor's.

    In Python this is `rest != 0 and (rest < 0) != (b < 0)`; on truth values of constants Inductor supports only the
    `logical_` operators.
    """
    return torch.logical_or(torch.logical_and(b < 0, rest > 0), torch.logical_and(b >= 0, rest < 0))


def remainder(a: Number, b: Number) -> Any:
    """Compute `a % b`: the remainder of a division that rounds down, with the sign of `b`."""
    pair = floats(a, b)
    if pair is None:
        return NotImplemented
    a, b = pair
    rest = torch.fmod(a, b)
    return torch.where(signs_differ(rest, b), rest + b, rest)


def floor_divide(a: Number, b: Number) -> Any:
    """Compute `a // b`."""
    return torch.div(a, b, rounding_mode="floor")


def divide(a: Number, b: Number, *, rounding_mode: str | None = None) -> Any:
    """Compute a division of floats that rounds down by way of the remainder, as Python does."""
    pair = floats(a, b) if rounding_mode == "floor" else None
    if pair is None:
        return NotImplemented
    a, b = pair
    rest, quotient = torch.fmod(a, b), a / b
    exact = (a - rest) / b
    exact = torch.where(signs_differ(rest, b), exact - 1, exact)
    down = exact.floor()
    down = torch.where(exact - down > 0.5, down + 1, down)
    down = torch.where(exact == 0, quotient * 0.0, down)  # a zero with the quotient's sign
    down = torch.where(rest != rest, quotient + (a - a), down)  # where `fmod` overflows; nan for infinities
    return torch.where(b == 0, quotient, down)


def index_fill(x: torch.Tensor, dim: int, index: torch.Tensor, value: Number) -> Any:
    """Fill the indexed slices of a dimension with a number."""
    if not x.dim() or index.dim() != 1:
        return NotImplemented
    filling = (
        torch.scalar_tensor(value, dtype=x.dtype, device=x.device) if not isinstance(value, torch.Tensor) else value
    )
    return aten.index_put(x, [*[None] * (dim % x.dim()), index], filling.to(x.dtype))


def expm1(x: torch.Tensor) -> Any:
    """Compute `exp(x) - 1`, by a series for small `x`, where the subtraction would cancel."""
    if x.device.type != "cpu" or not x.is_floating_point() or x.dtype == torch.float64:
        return NotImplemented
    series = 1 / 720 * x + 1 / 120
    for factor in (1 / 24, 1 / 6, 1 / 2, 1.0):
        series = series * x + factor
    return torch.where(x.abs() < 0.25, series * x, torch.exp(x) - 1)


def elu(x: torch.Tensor, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Any:
    """Compute ELU by `exp(x) - 1`, which is quick and exact enough, rather than by our `expm1`."""
    if x.device.type != "cpu" or not x.is_floating_point():
        return NotImplemented
    return torch.where(x >= 0, x * scale, (torch.exp(x * input_scale) - 1) * (alpha * scale))


def frac(x: torch.Tensor) -> torch.Tensor:
    """Compute the fractional part, `x - trunc(x)`."""
    return x - x.trunc()


def power(x: torch.Tensor, exponent: Number) -> Any:
    """Compute `x ** -0.5` as `rsqrt`, as eager does: `(-inf) ** -0.5` is nan."""
    return torch.rsqrt(x) if exponent == -0.5 and x.is_floating_point() else NotImplemented


def not_negative(x: torch.Tensor, index: torch.Tensor, dim: int) -> list[torch.Tensor | None] | None:
    """Return indices in which negative ones are out of bounds; None where kernels do not check bounds."""
    if x.device.type != "cpu" or not x.dim() or index.dim() != 1:
        return None
    return [*[None] * (dim % x.dim()), torch.where(index < 0, x.shape[dim], index)]


def index_select(x: torch.Tensor, dim: int, index: torch.Tensor) -> Any:
    """Select the indexed slices of a dimension; negative indices raise."""
    indices = not_negative(x, index, dim)
    return NotImplemented if indices is None else aten.index(x, indices)


def index_add(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: Number = 1) -> Any:
    """Add to the indexed slices of a dimension; negative indices raise."""
    indices = not_negative(x, index, dim)
    if indices is None:
        return NotImplemented
    return aten.index_put(x, indices, source if alpha == 1 else source * alpha, True)


def index_copy(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> Any:
    """Overwrite the indexed slices of a dimension; negative indices raise."""
    indices = not_negative(x, index, dim)
    return NotImplemented if indices is None else aten.index_put(x, indices, source)


def index_put(
    x: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> Any:
    """Write values, broadcast explicitly to the size of the elements that they overwrite."""
    shapes: Any = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    if any(each is not None and each.dtype in MASKS for each in indices) or shapes.free_unbacked_symbols(values.shape):
        return NotImplemented  # the number of elements written is unknown: eager's kernel is called
    size = aten.index(x, indices).shape
    if values.shape == size:
        return NotImplemented
    for dim in range(-values.dim(), 0):
        if values.shape[dim] == 1:  # makes a guard, after which the size is the constant 1
            values = values.select(dim, 0).unsqueeze(dim)
    return aten.index_put(x, indices, values.expand(size), accumulate)


def zeros(size: Sequence[Any], **kwargs: Any) -> torch.Tensor:
    """Return a tensor of zeros that has memory of its own."""
    return torch.zeros(size, **kwargs)


AT_EDGES: dict[Any, Callable[..., Any]] = {
    aten.remainder.Tensor: remainder,
    aten.remainder.Scalar: remainder,
    aten.remainder.Scalar_Tensor: remainder,
    aten.floor_divide.default: floor_divide,
    aten.floor_divide.Scalar: floor_divide,
    aten.div.Tensor_mode: divide,
    aten.div.Scalar_mode: divide,
    aten.elu.default: elu,
    aten.expm1.default: expm1,
    aten.pow.Tensor_Scalar: power,
    aten.index_select.default: index_select,
    aten.index_add.default: index_add,
    aten.index_copy.default: index_copy,
    aten.index_fill.int_Scalar: index_fill,
    aten.index_fill.int_Tensor: index_fill,
    aten.index_put.default: index_put,
    aten._efficientzerotensor.default: zeros,
}
if torch_compat.INDUCTOR_HAS_OLD_EDGES:
    AT_EDGES[aten.frac.default] = frac


def with_our_rows(table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Return a table of decompositions with our rows on top; ours fall back on its own."""
    return {**table, **{op: first(own, table.get(op)) for op, own in AT_EDGES.items()}}


def first(own: Callable[..., Any], other: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return a function that calls `own`, and `other` where that returns NotImplemented."""
    if other is None:
        return own

    @functools.wraps(own)
    def either(*args: Any, **kwargs: Any) -> Any:
        result = own(*args, **kwargs)
        return other(*args, **kwargs) if result is NotImplemented else result

    return either

"""Says operators by others where Inductor's do not give what eager's do at the edges of numbers.

A row for each operator. A function that gives NotImplemented leaves a case to Inductor.

- Floor division and remainder of floats with infinities and zeros: Inductor says `5 % inf` is nan, `inf // 1` is inf.
- On a CPU, `expm1` is `exp(x) - 1`, which is 0 for small numbers. ELU, where that hardly counts, stays quick.
- `x ** -0.5` is a root in eager.
- `index_select`, `index_add` and `index_copy` take no negative index, and Inductor's count it from the end. On a CPU
  such an index becomes one that is too large, which kernels look for: they raise, and eager says what is wrong.
  `index_fill` counts from the end, and Inductor says it by `index_copy`.
- `index_put` takes values that fit what is written over, of 1 where that is of more. Inductor's loop asks no guard for
  it where sizes vary, and would read past their end.
- `frac` of -0.0 is 0.0 in eager; an older Inductor keeps the sign.
- Zeros that forward-mode derivatives begin with have no memory, and Inductor would reuse its place.
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
    """Return both as tensors of floats of the dtype they are promoted to; None if that is no float."""
    dtype = torch.result_type(a, b)
    if not dtype.is_floating_point:
        return None
    device = next(each.device for each in (a, b) if isinstance(each, torch.Tensor))
    one, other = (
        each.to(dtype) if isinstance(each, torch.Tensor) else torch.scalar_tensor(each, dtype=dtype, device=device)
        for each in (a, b)
    )
    return one, other


def on_the_other_side(rest: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return where the rest of a division is no zero and has another sign than what was divided by.

    In Python's words `(rest < 0) != (b < 0)`; of truth values of constants, Inductor knows only `logical_` operators.
    """
    return torch.logical_or(torch.logical_and(b < 0, rest > 0), torch.logical_and(b >= 0, rest < 0))


def remainder(a: Number, b: Number) -> Any:
    """Compute `a % b`: the remainder of a division that rounds down, with the sign of `b`."""
    pair = floats(a, b)
    if pair is None:
        return NotImplemented
    a, b = pair
    rest = torch.fmod(a, b)
    return torch.where(on_the_other_side(rest, b), rest + b, rest)


def floor_divide(a: Number, b: Number) -> Any:
    """Compute `a // b`."""
    return torch.div(a, b, rounding_mode="floor")


def divide(a: Number, b: Number, *, rounding_mode: str | None = None) -> Any:
    """Compute a division of floats that rounds down, by the remainder, as Python does."""
    pair = floats(a, b) if rounding_mode == "floor" else None
    if pair is None:
        return NotImplemented
    a, b = pair
    rest, quotient = torch.fmod(a, b), a / b
    exact = (a - rest) / b
    exact = torch.where(on_the_other_side(rest, b), exact - 1, exact)
    down = exact.floor()
    down = torch.where(exact - down > 0.5, down + 1, down)
    down = torch.where(exact == 0, quotient * 0.0, down)  # of its sign
    down = torch.where(rest != rest, quotient + (a - a), down)  # too large for kernels of `fmod`; of infinities, nan
    return torch.where(b == 0, quotient, down)


def index_fill(x: torch.Tensor, dim: int, index: torch.Tensor, value: Number) -> Any:
    """Fill these of a dimension with a number."""
    if not x.dim() or index.dim() != 1:
        return NotImplemented
    filling = (
        torch.scalar_tensor(value, dtype=x.dtype, device=x.device) if not isinstance(value, torch.Tensor) else value
    )
    return aten.index_put(x, [*[None] * (dim % x.dim()), index], filling.to(x.dtype))


def expm1(x: torch.Tensor) -> Any:
    """Compute `exp(x) - 1`, by a series where the difference would lose what is left of a number."""
    if x.device.type != "cpu" or not x.is_floating_point() or x.dtype == torch.float64:
        return NotImplemented
    series = 1 / 720 * x + 1 / 120
    for factor in (1 / 24, 1 / 6, 1 / 2, 1.0):
        series = series * x + factor
    return torch.where(x.abs() < 0.25, series * x, torch.exp(x) - 1)


def elu(x: torch.Tensor, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Any:
    """Compute ELU as Inductor does, which is quick and exact enough: not with our `expm1`."""
    if x.device.type != "cpu" or not x.is_floating_point():
        return NotImplemented
    return torch.where(x >= 0, x * scale, (torch.exp(x * input_scale) - 1) * (alpha * scale))


def frac(x: torch.Tensor) -> torch.Tensor:
    """Compute what `trunc` leaves of a number."""
    return x - x.trunc()


def power(x: torch.Tensor, exponent: Number) -> Any:
    """Compute `x ** exponent` where eager computes a root: `-inf ** -0.5` is nan."""
    return torch.rsqrt(x) if exponent == -0.5 and x.is_floating_point() else NotImplemented


def not_negative(x: torch.Tensor, index: torch.Tensor, dim: int) -> list[torch.Tensor | None] | None:
    """Return indices of a tensor in which a negative index is too large; None where kernels do not look for that."""
    if x.device.type != "cpu" or not x.dim() or index.dim() != 1:
        return None
    return [*[None] * (dim % x.dim()), torch.where(index < 0, x.shape[dim], index)]


def index_select(x: torch.Tensor, dim: int, index: torch.Tensor) -> Any:
    """Take these of a dimension."""
    indices = not_negative(x, index, dim)
    return NotImplemented if indices is None else aten.index(x, indices)


def index_add(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: Number = 1) -> Any:
    """Add to these of a dimension."""
    indices = not_negative(x, index, dim)
    if indices is None:
        return NotImplemented
    return aten.index_put(x, indices, source if alpha == 1 else source * alpha, True)


def index_copy(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> Any:
    """Write over these of a dimension."""
    indices = not_negative(x, index, dim)
    return NotImplemented if indices is None else aten.index_put(x, indices, source)


def index_put(
    x: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> Any:
    """Write values of the size of what is written over."""
    shapes: Any = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    if any(each is not None and each.dtype in MASKS for each in indices) or shapes.free_unbacked_symbols(values.shape):
        return NotImplemented  # who knows what is written over? Eager's kernel is called
    size = aten.index(x, indices).shape
    if values.shape == size:
        return NotImplemented
    for dim in range(-values.dim(), 0):
        if values.shape[dim] == 1:  # a guard, after which it is 1 and no longer a formula
            values = values.select(dim, 0).unsqueeze(dim)
    return aten.index_put(x, indices, values.expand(size), accumulate)


def zeros(size: Sequence[Any], **kwargs: Any) -> torch.Tensor:
    """Make zeros that have memory."""
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


def over(table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Return a table with these rows over its own, which have what these leave."""
    return {**table, **{op: first(own, table.get(op)) for op, own in AT_EDGES.items()}}


def first(own: Callable[..., Any], other: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return a function that is one, or the other where that one gives NotImplemented."""
    if other is None:
        return own

    @functools.wraps(own)
    def either(*args: Any, **kwargs: Any) -> Any:
        result = own(*args, **kwargs)
        return other(*args, **kwargs) if result is NotImplemented else result

    return either

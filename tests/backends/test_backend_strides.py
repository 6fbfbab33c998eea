"""Divisions in divisions: what Inductor is told of them, and what comes of it."""

from __future__ import annotations

import pytest
import sympy
import torch
from torch._inductor.codegen import cpp
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

import torchdynamo
from torchdynamo.backends.strides import skip_sympy_strides

D0, D1 = (sympy.Symbol(name, integer=True, nonnegative=True) for name in ("d0", "d1"))
SHIFT = ModularIndexing(16 * FloorDiv(31 * D0 + D1, 16) + ModularIndexing(31 * D0 + D1, 1, 16) + 16, 1, 32)


@pytest.mark.parametrize(
    ("index", "growth"),
    [(4 * D0 + D1, 1), (3 * D1, 3), (D0, 0), (FloorDiv(D0, 7) + D1, 1), (SHIFT, D1), (SHIFT * 2 + D1, D1)],
    ids=str,
)
def test_what_is_told(index: sympy.Expr, growth: object) -> None:
    asked = cpp.stride_at_vec_range
    with skip_sympy_strides():
        assert cpp.stride_at_vec_range(index, D1, 16) == growth
    assert cpp.stride_at_vec_range is asked


def test_relative_shifts_of_relative_shifts() -> None:
    def shifted(x: torch.Tensor, by: int) -> torch.Tensor:
        rows, columns = x.shape[-2:]
        return x.reshape(2, columns, rows)[:, by:].reshape(2, rows, columns - by)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return (shifted(shifted(x.cos(), 1), 2) * 2 + 1).softmax(-1)

    x = torch.randn(2, 16, 34, requires_grad=True)
    compiled = torchdynamo.compile(fn, backend="inductor", fullgraph=True)
    torch.testing.assert_close(compiled(x), fn(x))
    (mine,) = torch.autograd.grad(compiled(x).pow(2).sum(), x)
    (theirs,) = torch.autograd.grad(fn(x).pow(2).sum(), x)
    torch.testing.assert_close(mine, theirs)

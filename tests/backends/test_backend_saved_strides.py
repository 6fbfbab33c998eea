"""What a forward saves for its backward lies as the forward's kernels leave it, also where its strides vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchdynamo
from torchdynamo.graph import shape_env

F = nn.functional
CONV = nn.Conv2d(3, 4, 3, padding=1)

FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[int, ...]]]] = {
    "square product": (lambda x: (x.tanh() @ x.t()).exp().sum(0) * x.shape[0], lambda n: (n, 4)),
    "permuted": (lambda x: (x.permute(2, 0, 1).softmax(0) @ x.permute(2, 1, 0)).tanh(), lambda n: (n, n + 1, n + 2)),
    "attention": (lambda x: ((x @ x.mT).softmax(-1) @ x).transpose(1, 2).flatten(2).exp(), lambda n: (2, 2, n, 8)),
}


@pytest.mark.parametrize(
    "name", ["attention", *(pytest.param(name, marks=pytest.mark.long) for name in ("square product", "permuted"))]
)
def test_gradients_at_other_sizes_by_one_graph(name: str) -> None:
    fn, shape = FUNCTIONS[name]
    compiled = torchdynamo.compile(fn, backend="inductor", dynamic=True, fullgraph=True)
    with torchdynamo.config.patch(error_on_recompile=True, suppress_errors=False):
        for size in (5, 8, 3):
            x = torch.randn(shape(size), requires_grad=True)
            results = fn(x), compiled(x)
            torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
            weight = torch.randn_like(results[0])
            (want,), (got,) = (torch.autograd.grad(each, x, weight) for each in results)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_gradients_of_images_of_other_sizes(layout: torch.memory_format) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(
            CONV(x.contiguous(memory_format=layout)).relu(), CONV.weight[:, :1].expand(-1, 4, -1, -1)
        ).tanh()

    compiled = torchdynamo.compile(fn, backend="inductor", dynamic=True, fullgraph=True)
    with torchdynamo.config.patch(suppress_errors=False):
        for size in (5, 8, 4):
            x = torch.randn(2, 3, size, size + 2, requires_grad=True)
            (want,), (got,) = (torch.autograd.grad(each(x).sum(), x) for each in (fn, compiled))
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_a_stride_in_words_is_one_for_all_sizes() -> None:
    env = shape_env.make_shape_env()
    rows, columns = (shape_env.new_symbol(env, value, name, 0, None)[1] for value, name in ((3, "a"), (7, "b")))
    assert env.evaluate_symexpr("4") == 4
    stride: Any = env.evaluate_symexpr(f"max(1, {rows}, {columns}) * ({columns} // 2)")
    assert stride.node.expr.free_symbols == {rows, columns}
    assert stride.node.hint == 21
    assert not env.guards

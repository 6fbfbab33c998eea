"""A compiled backward that fails, as it is compiled or as it runs, is eager's in its place."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo import config
from torchdynamo.errors import FallbackWarning
from torchdynamo.optimizations import aot_autograd


def as_it_is(gm: torch.fx.GraphModule, inputs: Any) -> Any:
    return gm.forward


def fails_to_compile(gm: torch.fx.GraphModule, inputs: Any) -> Any:
    raise AssertionError("no such kernel")


def fails_to_run(gm: torch.fx.GraphModule, inputs: Any) -> Any:
    def run(*args: Any) -> Any:
        raise AssertionError("no such kernel")

    return run


def two_results(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x @ w
    return y.sin(), y.cos().sum()


def back(fn: Callable[..., Any], x: torch.Tensor, w: torch.Tensor, **options: Any) -> Any:
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    first, second = fn(x, w)
    (first.square().mean() + second).backward(**options)
    return first.detach(), x.grad, w.grad


@pytest.mark.parametrize("options", [{}, {"retain_graph": True}, {"create_graph": True}], ids=str)
@pytest.mark.parametrize("compiler", [fails_to_compile, fails_to_run])
@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
def test_gradients_are_eagers(compiler: Any, options: dict[str, bool]) -> None:
    """With one warning for the graph, which runs eagerly from then on."""
    compiled = torchdynamo.compile(two_results, backend=aot_autograd(as_it_is, compiler))
    for seed in range(3):
        torch.manual_seed(seed)
        x, w = torch.randn(4, 3), torch.randn(3, 3)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = back(compiled, x, w, **options)
        torch.testing.assert_close(found, back(two_results, x, w, **options), rtol=0, atol=0)
        told = [str(each.message) for each in caught if issubclass(each.category, FallbackWarning)]
        if "create_graph" not in options:  # else the captured graph runs again in any case
            assert len(told) == (seed == 0), told
            assert all("no such kernel" in text for text in told)


def test_the_error_is_raised_if_errors_are_not_suppressed() -> None:
    compiled = torchdynamo.compile(two_results, backend=aot_autograd(as_it_is, fails_to_run))
    with config.patch(suppress_errors=False), pytest.raises(AssertionError, match="no such kernel"):
        back(compiled, torch.randn(4, 3), torch.randn(3, 3))


def test_random_numbers_are_not_drawn_again() -> None:
    backend = aot_autograd(as_it_is, fails_to_run)
    compiled = torchdynamo.compile(lambda x, w: (torch.nn.functional.dropout(x @ w), w.sum()), backend=backend)
    with pytest.raises(AssertionError, match="no such kernel"):
        back(compiled, torch.randn(4, 3), torch.randn(3, 3))


def test_what_autograd_refuses_is_refused() -> None:
    compiled = torchdynamo.compile(lambda x: x.sin().square(), backend="aot_eager")
    x = torch.ones(3, requires_grad=True)
    result = compiled(x)
    result.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        result.sum().backward()
    result = compiled(x)
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def fails_where_sizes_vary(gm: torch.fx.GraphModule, inputs: Any) -> Any:
    if any(isinstance(each, torch.SymInt) for each in inputs):
        raise AssertionError("no such size")
    return gm.forward


def test_a_backward_of_varying_sizes_fails_with_its_forward() -> None:
    """The graph runs eagerly from the first call on, whatever it draws or writes to."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x.sin() * x.size(0), 0.5)

    compiled = torchdynamo.compile(fn, backend=aot_autograd(as_it_is, fails_where_sizes_vary), dynamic=True)
    for size in (3, 4, 5):
        grads = []
        for run in (fn, compiled):
            torch.manual_seed(size)
            x = torch.ones(size, requires_grad=True)
            with warnings.catch_warnings():
                warnings.simplefilter("error" if size > 3 else "ignore", FallbackWarning)
                run(x).sum().backward()
            grads.append(x.grad)
        torch.testing.assert_close(*grads, rtol=0, atol=0)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_sparse_gradients(backend: str) -> None:
    table = torch.nn.Embedding(10, 4, sparse=True)
    bags = torch.nn.EmbeddingBag(10, 4, sparse=True)

    def fn(at: torch.Tensor) -> torch.Tensor:
        return (table(at) * table(at + 1) * bags(at.view(3, 2)).mean(0)).sum()

    grads = []
    for run in (fn, torchdynamo.compile(fn, backend=backend)):
        run(torch.arange(6)).backward()
        for each in (table, bags):
            assert each.weight.grad is not None and each.weight.grad.is_sparse
            grads.append(each.weight.grad.to_dense())
            each.weight.grad = None
    torch.testing.assert_close(grads[:2], grads[2:])

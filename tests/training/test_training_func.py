"""torch.func in a training: its layers and autograd's history in one graph, under backends that trace it once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from training import BACKENDS, Net, assert_feature, batches, loop

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def first_and_second(compile: Compile) -> Any:
    """Two results whose ways back have nothing in common; the layers of each are in one piece with what they give."""
    model = Net()

    def cubed(x: torch.Tensor) -> torch.Tensor:
        return model(x).pow(3).sum()

    def sizes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.func.jacrev(cubed)(x[0]).pow(2).sum(), torch.func.hessian(cubed)(x[0]).pow(2).sum()

    compiled = compile(sizes)

    def step(x: torch.Tensor) -> Any:
        first, second = compiled(x)
        first.backward()
        second.backward()
        return first.detach(), second.detach()

    return loop(step, model, count=3)


def errors_inside(compile: Compile) -> Any:
    """An operator that raises where layers are open: they are closed, as Python's `finally` would have it."""
    model = Net()

    def row(i: torch.Tensor) -> Any:
        return lambda x: model(x)[i].sum()

    transforms: list[Any] = [
        lambda x, i: torch.func.grad(row(i))(x),
        lambda x, i: torch.func.jvp(row(i), (x,), (x,))[1],
        lambda x, i: torch.vmap(lambda y: y[i])(x),
    ]
    results: list[Any] = []
    for transform in map(compile, transforms):
        for i in (0, 9, 1, 20):
            try:
                results.append(transform(next(batches()), torch.tensor([i])))
            except IndexError as error:
                results.append(str(error))
            results.append(torch._C._functorch.get_dynamic_layer_stack_depth())
    return results


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("feature", [first_and_second, errors_inside], ids=lambda feature: feature.__name__)
def test_same_as_eager(feature: Any, backend: str) -> None:
    assert_feature(feature, backend)


@pytest.mark.long
def test_zeros_have_memory_under_inductor() -> None:
    """Those that forward mode begins with have none in eager; a kernel would write to them."""
    assert_feature(first_and_second, "inductor")

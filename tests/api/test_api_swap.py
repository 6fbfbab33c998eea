"""Tensors of a program that was compiled can be swapped: nothing of ours, or of a backend's, refers to them weakly."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import torchdynamo


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    return model


def custom(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    return gm.forward


BACKENDS = ("eager", "aot_eager", custom)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)), (2, 3)),
    "buffers": (lambda: nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)), (2, 3, 4, 4)),
    "tied": (tied, (2, 3)),
}


@contextlib.contextmanager
def swapping() -> Iterator[None]:
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def tensors_of(model: nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_a_compiled_module_is_converted(model: str, train: bool, dynamic: bool | None, backend: Any) -> None:
    make, shape = MODELS[model]
    module, x = make(), torch.ones(shape)
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)

    def step(x: torch.Tensor) -> torch.Tensor:
        y = module(x)
        if train:
            y.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return y.detach()

    compiled = torchdynamo.compile(step, backend=backend, dynamic=dynamic)
    for _ in range(3):
        compiled(x)
    assert not [ref for tensor in tensors_of(module) for ref in weakref.getweakrefs(tensor)]
    before = [*module.parameters()]
    with swapping():
        module.to(torch.float64)
    assert all(one is other for one, other in zip(before, module.parameters(), strict=True))
    optimizer.state.clear()
    assert compiled(x.double()).dtype == torch.float64


@pytest.mark.parametrize("backend", BACKENDS)
def test_after_a_break_a_failure_and_an_error(backend: Any) -> None:
    module, x = nn.Linear(3, 3), torch.ones(2, 3)

    def step(x: torch.Tensor, how: str) -> Any:
        y = module(x)
        if how == "break":
            torchdynamo.graph_break()
        if how == "fails":
            return module(y) @ torch.ones(7, 7)
        return module(y) + x

    for how in ("break", "whole", "fails"):
        with contextlib.suppress(RuntimeError):
            torchdynamo.compile(step, backend=backend)(x, how)
    with swapping():
        module.double()
    assert module.weight.dtype == torch.float64


def test_the_values_that_were_swapped_in_are_used() -> None:
    module, x = nn.Linear(3, 3), torch.ones(2, 3)
    compiled = torchdynamo.compile(module, backend="eager")
    compiled(x)
    other = nn.Parameter(torch.zeros(3, 3))
    torch.utils.swap_tensors(module.weight, other)
    assert torch.equal(compiled(x), module.bias.expand(2, 3))

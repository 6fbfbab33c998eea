"""Twenty steps of a small model, eager and compiled, and everything that must come out the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

import torchdynamo

Step = Callable[[torch.Tensor], Any]
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Feature = Callable[[Any], Any]
"""A program that is given `compile`, and returns all that must be the same."""


def as_it_is(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


def compiled(backend: Any = "aot_eager") -> Compile:
    context: Compile = torchdynamo.optimize(backend)
    return context


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.second = torch.nn.Linear(4, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(torch.tanh(self.first(x)))
        return result


def batches(count: int = 20) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return (torch.randn(5, 3, generator=generator) for _ in range(count))


def state(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> list[Any]:
    """Parameters, buffers, gradients, the optimizer's state, the random state."""
    saved = optimizer.state_dict()["state"] if optimizer is not None else {}
    return [*model.state_dict().values(), [p.grad for p in model.parameters()], saved, torch.get_rng_state()]


def assert_same(expected: Any, actual: Any) -> None:
    """Equal to the bit."""
    ours, theirs = tree_leaves(actual), tree_leaves(expected)
    assert len(ours) == len(theirs)
    for a, b in zip(theirs, ours, strict=True):
        assert type(a) is type(b)
        if isinstance(a, torch.Tensor):
            assert a.dtype == b.dtype and a.requires_grad == b.requires_grad
            assert torch.equal(a, b), f"{(a - b).abs().max()} apart"
        else:
            assert a == b


def loop(step: Callable[..., Any], model: torch.nn.Module, optimizer: Any = None, count: int = 6) -> Any:
    """What the steps return, and the state after them."""
    results = [step(x) for x in batches(count)]
    return results, state(model, optimizer)

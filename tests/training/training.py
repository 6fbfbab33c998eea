"""Twenty steps of a small model, eager and compiled, and everything that must come out the same.

To the bit, by every backend but Inductor, which has to be close: it runs the whole table with `make training`.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from pictures import Picture, assert_alike
from torch.utils._pytree import tree_leaves

import torchdynamo

Step = Callable[[torch.Tensor], Any]
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Feature = Callable[[Any], Any]
"""A program that is given `compile`, and returns all that must be the same."""


Made = TypeVar("Made", bound=Callable[..., Any])


def named(table: dict[str, Made]) -> Callable[[Made], Made]:
    """A decorator that puts programs into a table, by name."""

    def put(fn: Made) -> Made:
        table[fn.__name__] = fn
        return fn

    return put


def as_it_is(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


LOW: set[Feature] = set()


def low_precision(feature: Feature) -> Feature:
    """Mark a program that computes in bfloat16 or float16: Inductor rounds for each kernel, eager for each operator."""
    LOW.add(feature)
    return feature


BACKENDS = os.environ.get("TRAINING_BACKENDS", "eager aot_eager").split()
INDUCTOR = functools.partial(torchdynamo.backends.lookup("inductor"), options={"fallback_random": True})


def compiled(backend: Any = "aot_eager") -> Compile:
    context: Compile = torchdynamo.optimize(INDUCTOR if backend == "inductor" else backend)
    return context


class OfGraphs(Picture):
    """Shows no strides of dimensions of size one, and not what was made in inference mode: AOTAutograd has its own."""

    def exact(self, obj: torch.Tensor) -> Iterator[Any]:
        yield tuple(stride for size, stride in zip(obj.shape, obj.stride(), strict=True) if size != 1)


def assert_feature(feature: Feature, backend: str) -> None:
    """A program returns the same whether its functions are compiled or not."""
    torchdynamo.reset()
    torch.manual_seed(5)
    expected = feature(as_it_is)
    torch.manual_seed(5)
    actual = feature(compiled(backend))
    if backend == "inductor":
        assert_close(expected, actual, 1e-1 if feature in LOW else 3e-3)
    else:
        assert_alike(expected, actual, taking=OfGraphs)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.second = torch.nn.Linear(4, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(torch.tanh(self.first(x)))
        return result


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def stepping(optimizer: torch.optim.Optimizer, loss_of: Step) -> Step:
    """A step of a training, which `loss_of` begins."""

    def train_step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = loss_of(x)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train_step


def batches(count: int = 20) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return (torch.randn(5, 3, generator=generator) for _ in range(count))


def state(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> list[Any]:
    """Parameters, buffers, gradients, the optimizer's state, the random state."""
    saved = optimizer.state_dict()["state"] if optimizer is not None else {}
    return [*model.state_dict().values(), [p.grad for p in model.parameters()], saved, torch.get_rng_state()]


def pairs(expected: Any, actual: Any) -> Iterator[tuple[Any, Any]]:
    """The leaves of both, of which there are as many, and of the same types."""
    ours, theirs = tree_leaves(actual), tree_leaves(expected)
    assert len(ours) == len(theirs)
    for a, b in zip(theirs, ours, strict=True):
        assert type(a) is type(b)
        yield a, b


def assert_close(expected: Any, actual: Any, near: float = 3e-3) -> None:
    """As near as the dtype lets other kernels come, after twenty steps. Under autocast that is not the results'."""
    for a, b in pairs(expected, actual):
        if isinstance(a, torch.Tensor):
            apart = max(near, 3e-2) if a.dtype in (torch.bfloat16, torch.float16) else near
            torch.testing.assert_close(b, a, rtol=apart, atol=apart / 10, equal_nan=True)
        elif isinstance(a, float):
            assert math.isclose(a, b, rel_tol=near, abs_tol=near / 10) or a != a
        else:
            assert a == b


def loop(step: Callable[..., Any], model: torch.nn.Module, optimizer: Any = None, count: int = 20) -> Any:
    """What the steps return, and the state after them."""
    results = [step(x) for x in batches(count)]
    return results, state(model, optimizer)

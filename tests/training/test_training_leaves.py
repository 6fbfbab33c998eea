"""Leaves that a function makes, however it makes them: they want gradients, take them, and are in what is returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchdynamo

MADE: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda x: torch.zeros(3, requires_grad=True),
    "full": lambda x: torch.full((3,), 2.0, requires_grad=True),
    "like": lambda x: torch.ones_like(x, requires_grad=True),
    "new": lambda x: x.new_zeros(3, requires_grad=True),
    "new_tensor": lambda x: x.new_tensor([1.0, 2.0, 3.0], requires_grad=True),
    "tensor": lambda x: torch.tensor([1.0, 2.0, 3.0], requires_grad=True),
    "parameter": lambda x: nn.Parameter(torch.ones(3)),
    "asked for": lambda x: torch.ones(3).requires_grad_(),
    "detached": lambda x: x.detach().requires_grad_(),
    "copied": lambda x: x.detach().clone().requires_grad_(),
    "drawn": lambda x: torch.randn(3, requires_grad=True),
    "drawn like": lambda x: torch.rand_like(x, requires_grad=True),
    "counted": lambda x: torch.arange(3.0, requires_grad=True),
    "spaced": lambda x: torch.linspace(0, 1, 3, requires_grad=True),
    "window": lambda x: torch.hann_window(3, requires_grad=True),
    "variable": lambda x: torch.autograd.Variable(x.detach(), requires_grad=True),
    "module": lambda x: nn.Linear(3, 1, bias=False).weight[0].detach().requires_grad_(),
}


class Kept:
    """What a function stores leaves on."""

    leaf: Any = None


def returned(make: Any, x: Any) -> Any:
    return make(x)


def viewed(make: Any, x: Any) -> Any:
    w = make(x)
    return w, w.view(-1, 1)


def used(make: Any, x: Any) -> Any:
    return (make(x) * x).sum()


def used_and_returned(make: Any, x: Any) -> Any:
    w = make(x)
    return w, (w * x).sum(), (w.sin() + x).sum()


def stored(make: Any, x: Any) -> Any:
    Kept.leaf = make(x)
    return (Kept.leaf * x).sum()


def hooked(make: Any, x: Any) -> Any:
    w = make(x)
    w.register_hook(lambda grad: grad * 2)
    return w, (w * x).sum()


def gone_back(make: Any, x: Any) -> Any:
    w = make(x)
    (w * x).sum().backward()
    return w, w.grad


def written_over(make: Any, x: Any) -> Any:
    w = make(x)
    with torch.no_grad():
        w.mul_(x)
    return w, (w * w).sum()


def without_gradients(make: Any, x: Any) -> Any:
    with torch.no_grad():
        w = make(x)
    return w, w * x


USES = [returned, viewed, used, used_and_returned, stored, hooked, gone_back, written_over, without_gradients]


def outcome(f: Any, make: Any) -> Any:
    """All there is to see: the leaves, what was computed of them, and every gradient, one way back after the other."""
    torch.manual_seed(0)
    Kept.leaf, x = None, torch.arange(3.0, requires_grad=True)
    result = f(make, x)
    seen = [each for each in (*(result if isinstance(result, tuple) else (result,)), Kept.leaf) if each is not None]
    facts: list[Any] = [(each.requires_grad, each.is_leaf, type(each), each.tolist()) for each in seen]
    for each in seen:
        if each.requires_grad:
            each.sum().backward(retain_graph=True)
            facts.append([None if t.grad is None else t.grad.tolist() for t in (x, *seen) if t.is_leaf])
    return facts


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("use", USES)
def test_a_leaf_that_is_made_inside(use: Any, backend: str) -> None:
    for name, make in MADE.items():
        compiled = torchdynamo.compile(use, backend=backend)
        for _ in range(2):
            assert outcome(compiled, make) == outcome(use, make), name
        torchdynamo.reset()


def test_inductor_leaves_such_graphs_alone() -> None:
    for use in (used_and_returned, hooked):
        compiled = torchdynamo.compile(use, backend="inductor")
        assert outcome(compiled, MADE["drawn"]) == outcome(use, MADE["drawn"])

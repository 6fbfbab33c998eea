"""What a capture that deals with leaves rests on, and which backends leave it alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pictures import assert_alike
from torch import nn

import torchdynamo


def slope(y, x):
    return torch.autograd.grad(y.sum(), x, allow_unused=True, retain_graph=True)


def test_history_from_before_the_frame():
    """Captured for leaves; for a result of earlier operators, the gradient goes further back than the graph does."""
    compiled = torchdynamo.compile(slope, backend="eager")
    x = torch.ones(3, requires_grad=True)
    for _ in range(2):
        assert_alike(slope(x, x), compiled(x, x))
        y = x * 2
        assert_alike(slope(y, x), compiled(y, x))


def asks(x):
    return x + 1 if x.is_leaf else x - 1


def test_leaf_or_not():
    compiled = torchdynamo.compile(asks, backend="eager")
    x = torch.ones(3, requires_grad=True)
    for y in (x, x * 2, x, x * 2):
        assert_alike(asks(y), compiled(y))


def marks(x, y):
    x.mark = 1
    return x + 1, hasattr(y, "mark")


def freezes(x, y):
    x.requires_grad_(False)
    return y.requires_grad, x + y


@pytest.mark.parametrize("fn", [marks, freezes])
def test_two_tensors_or_one(fn: Any):
    compiled = torchdynamo.compile(fn, backend="eager")

    def leaf() -> torch.Tensor:
        return torch.ones(3, requires_grad=True)

    for one in (False, True, False):
        theirs, mine = leaf(), leaf()
        assert_alike(fn(theirs, theirs if one else leaf()), compiled(mine, mine if one else leaf()))
        assert theirs.requires_grad == mine.requires_grad and theirs.__dict__ == mine.__dict__


def trains(x):
    w = nn.Parameter(x * 2)
    (grad,) = torch.autograd.grad((w * x).sum(), w)
    x.data = x.data + 1
    return w, grad, x


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor", "ts"])
def test_backends(backend: str):
    """Those that replay operators run the graph as it is."""
    compiled = torchdynamo.compile(trains, backend=backend, fullgraph=True)
    for _ in range(2):
        theirs, mine = torch.ones(3), torch.ones(3)
        assert_alike((trains(theirs), theirs), (compiled(mine), mine))

"""torch.cond: one graph with both sides, of which a run takes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import torchdynamo
from torchdynamo.errors import Unsupported

X = torch.arange(1.0, 7.0).reshape(2, 3)
WEIGHT = torch.arange(9.0).reshape(3, 3).requires_grad_()
LAYER = torch.nn.Linear(3, 3)


def simple(x: Any, cond: Any) -> Any:
    return cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


def captured(x: Any, cond: Any) -> Any:
    """What the sides take from around them. The operator's gradient of what a side does not take is zero, not None."""
    y = x * 2

    def yes(a: Any, b: Any) -> Any:
        return a @ WEIGHT + y, {"more": [b.sin()]}

    def no(a: Any, b: Any) -> Any:
        return LAYER(a), {"more": [b.cos()]}

    first, rest = cond((x > 0).all(), yes, no, (x, y))
    return first, rest["more"][0] * 2


def by_size(x: Any, cond: Any) -> Any:
    return cond(x.shape[0] > 1, lambda x: x + 1, lambda x: x - 1, (x,))


def nested(x: Any, cond: Any) -> Any:
    def inner(x: Any) -> Any:
        return cond(x.max() > 9, lambda x: x * 2, lambda x: x * 3, (x,))

    return cond(x.sum() > 0, inner, lambda x: x - 1, (x,)) + 1


def with_writes_of_its_own(x: Any, cond: Any) -> Any:
    return cond(x.sum() > 0, lambda x: x.clone().add_(1), lambda x: torch.zeros_like(x).copy_(x), (x,))


def plain_if(pred: Any, yes: Any, no: Any, operands: Any = ()) -> Any:
    return yes(*operands) if pred else no(*operands)


def with_gradients(fn: Callable[..., Any], x: torch.Tensor, *args: Any) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    WEIGHT.grad = torch.zeros_like(WEIGHT)
    results = tree_leaves(fn(x, *args))
    torch.autograd.backward([each.sum() for each in results])
    return [*(each.detach() for each in results), x.grad, WEIGHT.grad]  # type: ignore[list-item]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [simple, captured, by_size, nested, with_writes_of_its_own])
def test_one_graph_for_both_ways(fn: Any, backend: str) -> None:
    graphs: list[Any] = []

    def counting(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return torchdynamo.optimizations.BACKENDS[backend](gm, inputs)

    compiled = torchdynamo.compile(lambda x: fn(x, torch.cond), backend=counting, fullgraph=True)
    for x in (X, -X, X * 9):
        wanted, got = with_gradients(fn, x, plain_if), with_gradients(compiled, x)
        assert all(torch.equal(a, b) for a, b in zip(wanted, got, strict=True))
    assert len(graphs) == 1


@pytest.mark.parametrize(
    "side",
    [lambda x: x, lambda x: x.view(3, 2), lambda x: x.add_(1), lambda x: 3, lambda x: (x + 1, x + 2)],
    ids=["itself", "a view", "a write", "a number", "another number of results"],
)
def test_what_a_side_may_not_do(side: Any) -> None:
    with pytest.raises(Unsupported):
        torchdynamo.compile(
            lambda x: torch.cond(x.sum() > 0, side, lambda x: x - 1, (x,)), backend="eager", fullgraph=True
        )(X.clone())

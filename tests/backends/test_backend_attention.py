"""Inductor's attention: what it takes for attention, and what only looks like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache

import torchdynamo

SHAPE = (4, 4, 4, 4)
PADDED = torch.tensor([[1, 0, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]])


def attention(q: Any, k: Any, v: Any, dim: int = -1) -> Any:
    return (q @ k.transpose(-2, -1) / 4).softmax(dim) @ v


def of_heads(q: Any, k: Any, v: Any, order: tuple[int, ...] = (0, 2, 1, 3)) -> Any:
    q, k, v = (each.permute(order) for each in (q, k, v))
    return attention(q, k, v)


def filled(q: Any, k: Any, v: Any, value: float) -> Any:
    q, k, v = (each.permute(0, 2, 1, 3) for each in (q, k, v))
    scores = q @ k.transpose(-2, -1) / 4
    mask = (PADDED == 0).view(4, 1, 1, 4).expand_as(scores)
    return scores.masked_fill(mask, value).softmax(-1) @ v


ATTENTION: dict[str, Callable[..., Any]] = {
    "written out": attention,
    "of heads": of_heads,
    "values swapped": lambda q, k, v: attention(q, k, v.transpose(-2, -1)),
}
NONE: dict[str, Callable[..., Any]] = {
    "over queries": lambda q, k, v: attention(q, k, v, -2),
    "over a batch": lambda q, k, v: attention(q, k, v, 0),
    "scaled, over queries": lambda q, k, v: (q @ k.transpose(-2, -1)).mul(0.5).softmax(-2) @ v,
    "with a mask, over queries": lambda q, k, v: (q @ k.transpose(-2, -1) / 4 + PADDED.float()).softmax(-2) @ v,
    "keys as they are": lambda q, k, v: (q @ k.permute(0, 1, 2, 3) / 4).softmax(-1) @ v,
    "heads of another order": lambda q, k, v: of_heads(q, k, v, (2, 0, 1, 3)),
    "a fill that has weight": lambda q, k, v: filled(q, k, v, 5.0),
}


def outcome(f: Any, training: bool) -> list[torch.Tensor]:
    """The result, and the gradients."""
    torch.manual_seed(0)
    given = [torch.randn(SHAPE, requires_grad=training) for _ in range(3)]
    result = f(*given)
    if training:
        result.square().sum().backward()
    return [result.detach(), *(each.grad for each in given if each.grad is not None)]


@pytest.mark.parametrize(
    ("name", "training"), [*((name, False) for name in ATTENTION | NONE), ("of heads", True), ("over queries", True)]
)
def test_only_attention_is_replaced(name: str, training: bool) -> None:
    fn = (ATTENTION | NONE)[name]
    counters.clear()
    with fresh_cache(), torchdynamo.config.patch(rewrites=False):
        torch.testing.assert_close(
            outcome(torchdynamo.compile(fn, backend="inductor"), training), outcome(fn, training), atol=1e-4, rtol=1e-4
        )
    assert bool(counters["inductor"]["fuse_attention"]) is (name in ATTENTION)


@pytest.mark.parametrize("rewrites", [False, True])
def test_keys_of_a_batch_of_one(rewrites: bool) -> None:
    """Permuted to a batch of several: what is replaced would have another shape."""
    q, k, v = torch.randn(4, 1, 4, 4), torch.randn(1, 4, 4, 4), torch.randn(4, 1, 4, 4)

    def fn(q: Any, k: Any, v: Any) -> Any:
        return (q @ k.permute(1, 0, 3, 2) / 4).softmax(-1) @ v

    run = torchdynamo.compile(fn, backend="inductor", options={"rewrites": rewrites})
    torch.testing.assert_close(run(q, k, v), fn(q, k, v))


def test_a_pass_of_the_users_runs_instead() -> None:
    seen: list[torch.fx.Graph] = []
    options = {"joint_custom_pre_pass": seen.append, "fx_graph_cache": False}
    compiled = torchdynamo.compile(lambda x: x.sin() + 1, backend="inductor", options=options)
    assert torch.allclose(compiled(torch.ones(3)), torch.ones(3).sin() + 1)
    assert seen

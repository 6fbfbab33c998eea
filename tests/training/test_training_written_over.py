"""Buffers that a forward reads and then writes to: the backward goes by what was read.

A partition that computes again what is cheap could begin at the buffer, which holds something else by then.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.fx
from pictures import assert_alike
from training import Feature, as_it_is, assert_close, batches, compiled, loop, stepping

import torchdynamo
from torchdynamo.backends import aot_autograd
from torchdynamo.backends.partition import min_cut


def statistics(compile: Any) -> Any:
    """Of before and after."""
    weight, seen = torch.nn.Parameter(torch.randn(3)), torch.ones(3)

    def train_step(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            before = torch.rsqrt(seen + 1)
            seen.add_(x.pow(2).mean(0))
            after = torch.rsqrt(seen + 1)
        loss = (weight * x * before * after.t()).sin().sum()
        loss.backward()
        return loss.detach()

    return loop(compile(train_step), torch.nn.ParameterList([weight]), count=5), seen


def spectral_norm(compile: Any) -> Any:
    """Goes a step further with the vectors that it keeps."""
    model = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(3, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    return loop(compile(stepping(optimizer, lambda x: model(x).pow(2).mean())), model, count=5)


@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp_partition", "inductor"])
@pytest.mark.parametrize("feature", [statistics, spectral_norm], ids=lambda feature: feature.__name__)
def test_gradients(feature: Feature, backend: str) -> None:
    found = []
    for compile in (as_it_is, compiled(backend)):
        torchdynamo.reset()
        torch.manual_seed(5)
        found.append(feature(compile))
    if backend == "aot_eager":
        assert_alike(*found)
    assert_close(*found, near=1e-4)


def test_what_is_not_written_to_is_computed_again() -> None:
    """Nothing but the input is kept."""
    kept = []

    def backward(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        kept.extend(node.name for node in gm.graph.find_nodes(op="placeholder"))
        return gm.forward

    backend = aot_autograd(lambda gm, inputs: gm.forward, backward, partition_fn=min_cut)
    x = next(batches()).requires_grad_()
    compiled(backend)(lambda x: x.sin().sin().sin().sum())(x).backward()
    assert kept == ["primals_1", "tangents_1"]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_memory_that_is_shared_behind_autograds_back(backend: str) -> None:
    """AOTAutograd takes no such inputs with gradients: the graph is left to run as it is."""

    def fn(weight: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> Any:
        one.add_(1)
        return ((weight * other).sum(),)

    gm, weight, one = torch.fx.symbolic_trace(fn), torch.ones(2, requires_grad=True), torch.arange(4.0)
    stranger = torch.empty(0).set_(one.untyped_storage(), 1, (2,))
    run = torchdynamo.backends.lookup(backend)
    assert run(gm, [weight, one, stranger]) is None
    assert run(gm, [weight, one[:3], stranger[1:]]) is None
    for taken in ([weight, one, one[1:3]], [weight, one, torch.ones(2)], [weight.detach(), one, stranger]):
        assert run(gm, taken) is not None

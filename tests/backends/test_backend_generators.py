"""Random numbers from a generator that the program brings, as diffusion pipelines do: they are drawn as in eager."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.errors import FallbackWarning
from torchdynamo.optimizations import aot_autograd


class Pipeline(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = torch.nn.Linear(3, 3)

    def forward(self, x: Any, generator: Any = None) -> Any:
        noise = torch.randn(x.shape, generator=generator)
        for i in range(2):
            x = self.step(x).tanh() + noise * i
        return x + torch.rand(x.shape, generator=generator)


def in_place(x: Any, generator: Any) -> Any:
    return (x * 2).normal_(generator=generator) + x, torch.randperm(4, generator=generator)


def by_probability(x: Any, generator: Any) -> Any:
    return torch.bernoulli(x.sigmoid(), generator=generator) * x.exp()


def not_used(x: Any, generator: Any) -> Any:
    return x * 2 if generator is not None else x


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("fn", [Pipeline(), in_place, by_probability, not_used])
def test_a_generator_is_drawn_from(fn: Any, backend: str) -> None:
    compiled = torchdynamo.compile(fn, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for seed, length in enumerate((3, 3, 3)):
            x, results, states = torch.ones(length), [], []
            for run in (fn, compiled):
                generator = torch.Generator().manual_seed(seed)
                results.append(run(x, generator))
                states.append(generator.get_state())
            torch.testing.assert_close(*results)
            assert torch.equal(*states)


UNUSED: dict[str, Any] = {
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5),
    "rand": lambda x: torch.rand(3),
    "rand_like": torch.rand_like,
    "in place": lambda x: torch.empty(3).bernoulli_(0.5),
    "several": lambda x: (torch.randperm(4), torch.multinomial(x.abs(), 1), torch.normal(x, 1.0)),
    "by probability": lambda x: torch.bernoulli(x.sigmoid()),
    "rrelu": lambda x: torch.nn.functional.rrelu(x, training=True),
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", UNUSED)
def test_numbers_that_nothing_uses_are_drawn(name: str, dynamic: bool, gradients: bool) -> None:
    def draws(x: torch.Tensor) -> torch.Tensor:
        UNUSED[name](x)
        return x.exp()

    x = torch.randn(2, 5, requires_grad=gradients)
    compiled = torchdynamo.compile(draws, backend="aot_eager", dynamic=dynamic)
    for _ in range(2):
        states = []
        for run in (draws, compiled):
            torch.manual_seed(0)
            result = run(x)
            if gradients:
                result.sum().backward()
            states.append(torch.get_rng_state())
        assert torch.equal(*states)


def test_what_does_not_draw_is_compiled() -> None:
    compiled: list[torch.fx.GraphModule] = []

    def compiler(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        compiled.append(gm)
        return gm.forward

    model = Pipeline()
    run = torchdynamo.compile(model, backend=aot_autograd(compiler), fullgraph=True)
    with torch.no_grad():
        run(torch.ones(3), torch.Generator().manual_seed(0))
    targets = [node.target for gm in compiled for node in gm.graph.nodes]
    assert targets.count(torch.ops.aten.tanh.default) == 2
    assert not any("rand" in str(target) for target in targets)

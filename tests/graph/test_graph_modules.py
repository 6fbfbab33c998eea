"""What the code of a graph calls."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import torchdynamo

kept_sin, kept_softmax, kept_cumsum = torch.sin, F.softmax, np.cumsum


def kept(x: torch.Tensor) -> torch.Tensor:
    return kept_sin(x) + 1


def kept_with_dim(x: torch.Tensor) -> torch.Tensor:
    return kept_softmax(x, 0)


def kept_of_numpy(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(kept_cumsum(x.numpy(), axis=0)) + 1


def layer(x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, x) + torch.zeros(2, 2, dtype=torch.float64)


PROGRAMS: list[tuple[Callable[[torch.Tensor], torch.Tensor], Any, str]] = [
    (kept, torch, "sin"),
    (kept_with_dim, F, "softmax"),
    (kept_with_dim, torch, "softmax"),
    (kept_of_numpy, np, "cumsum"),
    (layer, torch._C._nn, "linear"),
]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(("fn", "module", "name"), PROGRAMS, ids=lambda each: getattr(each, "__name__", each))
def test_a_function_replaced_later_is_not_called(
    fn: Callable[[torch.Tensor], torch.Tensor], module: Any, name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(2, 2)
    expected = fn(x)
    compiled = torchdynamo.compile(fn, backend=backend)
    assert torch.equal(compiled(x), expected)
    monkeypatch.setattr(module, name, lambda *args, **kwargs: torch.full((2, 2), 7.0))
    assert torch.equal(compiled(x), expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_function_replaced_before_is_not_called(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 2)
    monkeypatch.setattr(torch, "sin", torch.cos)
    assert torch.equal(torchdynamo.compile(kept, backend=backend)(x), kept(x))


def test_a_function_that_is_replaced_is_called_where_it_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = torchdynamo.compile(lambda x: torch.sin(x), backend="eager")
    x = torch.randn(2, 2)
    assert torch.equal(compiled(x), x.sin())
    monkeypatch.setattr(torch, "sin", torch.cos)
    assert torch.equal(compiled(x), x.cos())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda gm: pickle.loads(pickle.dumps(gm))])
def test_graphs_are_copied_and_pickled(copied: Callable[[Any], Any]) -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
        graphs.append(gm)
        return gm.forward

    x = torch.randn(2, 2)
    result = torchdynamo.compile(kept, backend=backend)(x)
    (same,) = copied(graphs[0])(x)
    assert torch.equal(same, result)

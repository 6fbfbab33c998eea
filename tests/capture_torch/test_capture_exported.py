"""Programs in terms of operators themselves: written so, exported, or traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import torchdynamo
from torchdynamo.report.explain import collecting


def written(x: torch.Tensor) -> Any:
    return torch.ops.aten.add.Tensor(torch.ops.aten.relu(x), 1)


def exported() -> Callable[..., Any]:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.GELU())
    module = torch.export.export(model, (torch.randn(2, 3),)).module()
    return lambda x: module(x) * 2


def traced() -> Callable[..., Any]:
    graph: Callable[..., Any] = make_fx(lambda x: x.sin() + 1)(torch.randn(2, 3))
    return graph


@pytest.mark.parametrize("made", [lambda: written, exported, traced], ids=["written", "exported", "traced"])
def test_whole_and_compiled_once(made: Callable[[], Callable[..., Any]]) -> None:
    fn = made()
    fast = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    with collecting() as events:
        for _ in range(3):
            x = torch.randn(2, 3)
            assert torch.equal(fn(x), fast(x))
    assert len(events) == 1

"""Lazy modules: the call that gives them their shapes runs eagerly, and from the next on they are captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchdynamo

X = torch.arange(6.0).reshape(2, 3)


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LazyLinear(4)
        self.rest = nn.Sequential(nn.ReLU(), nn.LazyBatchNorm1d(), nn.LazyLinear(2))

    def forward(self, x: Any) -> Any:
        return self.rest(self.first(x + 1))


MODELS: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "by itself": (lambda: nn.LazyLinear(4), X),
    "inside": (Lazy, X),
    "convolution": (lambda: nn.LazyConv2d(2, 1), X.reshape(1, 1, 2, 3)),
}


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_captured_once_it_has_its_shapes(name: str, fullgraph: bool) -> None:
    make, x = MODELS[name]
    theirs, mine = make(), make()
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = torchdynamo.compile(mine, backend=backend, fullgraph=fullgraph)
    for call in range(3):
        torch.manual_seed(call)
        wanted = theirs(x)
        torch.manual_seed(call)
        before = len(graphs)
        assert torch.equal(compiled(x), wanted)
    assert graphs and len(graphs) == before, "compiled once more"
    called = [node for node in graphs[-1].graph.nodes if node.op.startswith("call_")]
    assert len(called) >= (5 if name == "inside" else 1), "not in one graph"
    assert all(torch.equal(a, b) for a, b in zip(mine.parameters(), theirs.parameters(), strict=True))
    assert type(mine) is type(theirs)

"""Loops whose turns compute the same again and again end the graph before they fill it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from counting import Counting

import torchdynamo
from torchdynamo.capture.speculate import unrolling


@pytest.fixture(autouse=True)
def few_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with loops of thousands of operators, but quicker."""
    monkeypatch.setattr(unrolling, "OPERATORS", 60)


def turn(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 0.5 + x.cos()


def simulated(x: torch.Tensor) -> torch.Tensor:
    x = x * 2
    for _ in range(50):
        x = torch.sin(x) * 0.5 + x.cos()
    return x - 1


def of_functions(x: torch.Tensor) -> torch.Tensor:
    for _ in range(50):
        x = turn(x)
    return x - 1


def nested(x: torch.Tensor) -> torch.Tensor:
    for i in range(20):
        for j in range(3):
            x = torch.sin(x) * 0.1 * i + j
    return x


def in_a_callee(x: torch.Tensor) -> torch.Tensor:
    return simulated(x + 1) * 3


def collected(x: torch.Tensor) -> Any:
    found = []
    for n in range(50):
        x = torch.sin(x) + n
        found.append(x.sum())
    return torch.stack(found), len(found)


def left_early(x: torch.Tensor) -> Any:
    for n in range(100):
        x = torch.sin(x) + 1 - 0.5
        if n == 70:
            break
    else:
        x = x * 0
    return x, n


def in_a_block(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        for _ in range(50):
            x = torch.sin(x) * 0.5 + 1
    return x * 2


def comprehended(x: torch.Tensor) -> Any:
    return [torch.sin(x + n) * 2 for n in range(50)]


PROGRAMS = [simulated, of_functions, nested, in_a_callee, collected, left_early, in_a_block, comprehended]


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    return all(map(alike, a, b)) if isinstance(a, (tuple, list)) else a == b


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_what_repeats_itself_stays_python(fn: Callable[..., Any], backend: str) -> None:
    counting, x = Counting(backend), torch.rand(4)
    compiled = torchdynamo.compile(fn, backend=counting)
    for _ in range(3):
        assert alike(compiled(x), fn(x))
    assert max((operators(gm) for gm in counting.graphs), default=0) < 40


def operators(gm: torch.fx.GraphModule) -> int:
    return sum(node.op.startswith("call_") for node in gm.graph.nodes)


def test_turns_of_such_a_loop_are_compiled() -> None:
    counting, x = Counting(), torch.rand(4)
    compiled = torchdynamo.compile(of_functions, backend=counting)
    assert torch.equal(compiled(x), of_functions(x))
    assert any(node.target is torch.sin for gm in counting.graphs for node in gm.graph.nodes)


class Tower(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(40))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return x


@torch.no_grad()
def test_layers_are_written_out() -> None:
    counting, tower, x = Counting(), Tower(), torch.rand(2, 3)
    assert torch.equal(torchdynamo.compile(tower, backend=counting)(x), tower(x))
    assert len(counting.graphs) == 1


def test_updates_of_many_parameters_are_written_out() -> None:
    """Their tensors were gathered in a loop before, which computes nothing."""
    counting = Counting()
    parameters = [torch.nn.Parameter(torch.rand(3)) for _ in range(40)]
    optimizer = torch.optim.AdamW(parameters, foreach=False)
    for each in parameters:
        each.grad = torch.ones(3)
    step = torchdynamo.compile(optimizer.step, backend=counting)
    for _ in range(3):
        step()
    assert max(len(gm.graph.nodes) for gm in counting.graphs) > 200


def test_whole_graphs_are_written_out() -> None:
    counting, x = Counting(), torch.rand(4)
    assert torch.equal(torchdynamo.compile(simulated, backend=counting, fullgraph=True)(x), simulated(x))
    (gm,) = counting.graphs
    assert len(gm.graph.nodes) > 200
    with torch._dynamo.error_on_graph_break(True):
        assert torch.equal(torchdynamo.compile(nested, backend="eager")(x), nested(x))

"""docs/toy.py, the whole idea in one file: as eager, in as many graphs and entries as it says, and short."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 13), reason="the toy knows the instructions of earlier Pythons")
TOY = Path(__file__).parent.parent / "docs" / "toy.py"
LOG: list[torch.Tensor] = []


@pytest.fixture
def toy() -> Any:
    spec = importlib.util.spec_from_file_location("toy", TOY)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entries(hook: Any) -> int:
    return sum(map(len, hook.entries.values()))


def test_it_is_read_in_ten_minutes() -> None:
    assert len(TOY.read_text().splitlines()) < 300


def test_it_runs() -> None:
    done = subprocess.run([sys.executable, TOY], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "sum -: 3 entries so far" in done.stdout


def test_the_example(toy: Any) -> None:
    """A graph before the branch, and one on either side; none is captured again until a guard fails."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
        graphs.append(gm)
        return gm.forward

    hook = toy.Hook(backend)
    compiled = hook(toy.toy_example)
    for sign, expected in ((1, 2), (-1, 3), (1, 3), (-1, 3)):
        a, b = torch.randn(4), sign * torch.rand(4)
        assert torch.equal(compiled(a, b), toy.toy_example(a, b))
        assert len(graphs) == entries(hook) == expected
    a, b = torch.randn(4, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
    assert torch.equal(compiled(a, b), toy.toy_example(a, b))
    assert entries(hook) == 5


def scaled(x: torch.Tensor, k: float) -> torch.Tensor:
    return x * k


def noted(x: torch.Tensor, k: float, log: list[torch.Tensor]) -> torch.Tensor:
    if k > 1.0:
        x = scaled(x, k)
    log.append(x.sum())
    return x @ x


def test_calls_are_inlined_constants_guarded_and_appends_replayed(toy: Any) -> None:
    hook = toy.Hook(lambda gm, example_inputs: gm.forward)
    compiled = hook(noted)
    for k, expected in ((2.0, 1), (2.0, 1), (0.5, 2)):
        x, ours, theirs = torch.randn(3), list[torch.Tensor](), list[torch.Tensor]()
        assert torch.equal(compiled(x, k, ours), noted(x, k, theirs))
        assert len(ours) == 1 and torch.equal(ours[0], theirs[0])
        assert entries(hook) == expected


def test_what_it_cannot_follow(toy: Any) -> None:
    with pytest.raises(NotImplementedError, match="the instruction BUILD_LIST"):
        toy.Hook(lambda gm, example_inputs: gm.forward)(lambda x: [x])(torch.ones(1))

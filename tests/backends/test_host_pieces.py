"""Pieces between NumPy's operators: an error of one leaves the draws and writes of those before as they are, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import torchdynamo
from torchdynamo.backends.registry import lookup
from torchdynamo.errors import FallbackWarning


def draws(x: Tensor) -> Tensor:
    n = np.random.rand()
    return torch.linalg.inv(x) * n


def draws_late(x: Tensor) -> Tensor:
    n = np.random.rand()
    y = torch.linalg.inv(x)
    return y * n + np.random.rand()


def writes(x: Tensor) -> Tensor:
    x.add_(1)
    a = x.numpy() * 1
    return torch.linalg.inv(torch.from_numpy(a) - 1)


def writes_by_position(x: Tensor) -> Tensor:
    a = x.numpy()
    np.add(a, 1, a)
    return torch.linalg.inv(x - 1)


def draws_of_torchs(x: Tensor) -> Tensor:
    noise = torch.rand(2, 2) + torch.from_numpy(np.random.rand(2, 2))
    return torch.linalg.inv(x.double()) + noise


def seen(fn: Callable[[Tensor], Tensor]) -> Any:
    np.random.seed(0)
    torch.manual_seed(0)
    found = []
    for x in (torch.ones(2, 2), torch.eye(2), torch.ones(2, 2), torch.eye(2) * 2):
        try:
            result = fn(x).tolist()
        except torch.linalg.LinAlgError as error:
            lines, entry = [], error.__traceback__
            while entry is not None:
                lines.append((entry.tb_frame.f_code.co_name, entry.tb_lineno))
                entry = entry.tb_next
            result = lines[1:], str(error)
        found.append((result, x.tolist()))
    return found, np.random.rand(), torch.rand(1).item()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [draws, draws_late, writes, writes_by_position, draws_of_torchs])
def test_nothing_is_done_twice(fn: Callable[[Tensor], Tensor], backend: str) -> None:
    expected = seen(fn)
    torchdynamo.reset()
    assert seen(torchdynamo.compile(fn, backend=backend)) == expected


def test_a_piece_that_fails_runs_in_eager() -> None:
    """The pieces before it, which draw, do not run again."""

    def failing(gm: torch.fx.GraphModule, examples: Any) -> Any:
        def run(*args: Any) -> Any:
            raise RuntimeError("the backend's")

        return run

    def program(x: Tensor) -> Any:
        n = np.random.rand()
        return x * n, torch.linalg.inv(x) + n

    x = torch.eye(2)
    torchdynamo.reset()
    compiled = torchdynamo.compile(program, backend=failing)

    def calls(fn: Any) -> Any:
        np.random.seed(0)
        return [[each.tolist() for each in fn(x)] for _ in range(3)]

    with pytest.warns(FallbackWarning, match="ran eagerly instead"):
        found = calls(compiled)
    assert found == calls(program)


def stays(x: Tensor) -> Any:
    """Each number is used in its piece."""
    n = x.sum().item()
    y = (x * n + n**2).sqrt() / n
    doubled = x.detach().numpy() * 2
    m = y.sum().item()
    return (y + torch.from_numpy(doubled)) * m - m


def crosses(x: Tensor) -> Any:
    """A number is used before and after an array, and what takes it runs as it is."""
    n = x.sum().item()
    y = x * n
    doubled = x.detach().numpy() * 2
    return ((y.cos() + torch.from_numpy(doubled)).sin() * (n + 1)).exp()


def updates(x: Tensor) -> Any:
    """Writes with numbers, around an array."""
    mean, step = x.detach() * 1, x.detach()[0, 0] * 1
    losses = np.zeros(3)
    for at in range(3):
        step += 1
        count = step.item()
        mean.lerp_(x.detach().sin(), 0.1).div_(1 - 0.9**count)
        losses[at] += 2.0
    return x * mean, step, torch.from_numpy(losses)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(("fn", "compiled"), [(stays, 3), (crosses, 5), (updates, 1)])
def test_numbers_are_left_to_the_backend_that_uses_them(
    fn: Callable[[Tensor], Any], compiled: int, backend: str
) -> None:
    pieces: list[torch.fx.GraphModule] = []

    def counting(gm: torch.fx.GraphModule, examples: Any) -> Any:
        pieces.append(gm)
        return lookup(backend)(gm, examples)

    def outcome(run: Callable[[Tensor], Any], scale: float) -> list[Any]:
        x = (torch.eye(2) * scale + 1).requires_grad_()
        result, *rest = run(x) if fn is updates else (run(x),)
        result.sum().backward()
        return [result.detach(), *rest, x.grad]

    torchdynamo.reset()
    with torchdynamo.config.patch(capture_scalar_outputs=True, suppress_errors=False):
        run = torchdynamo.compile(fn, backend=counting, fullgraph=True)
        for scale in (1.0, 2.0, 3.5):
            torch.testing.assert_close(outcome(run, scale), outcome(fn, scale))
    assert len(pieces) == compiled

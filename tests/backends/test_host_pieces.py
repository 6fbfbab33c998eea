"""Pieces between NumPy's operators: an error of one leaves the draws and writes of those before as they are, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import torchdynamo
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

"""Slices whose parts are tensors, or numbers that change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchdynamo

X = torch.arange(30.0).view(6, 5)
N = torch.tensor(2)


def made(x, n):
    return slice(n, None), x + 1


def given(x, s):
    return x[s] * 2, s.start, s.stop, s.step, s == slice(1, 3), s


def from_a_tensor(x, n):
    y = x * 2
    return y[:, n:] + y[n:, n : n + 1].sum()


CASES: list[tuple[Callable[..., Any], Any]] = [
    (made, N),
    (given, slice(N, None)),
    (given, slice(N, 4)),
    (given, slice(1, 3)),
    (from_a_tensor, N),
]


@pytest.mark.parametrize(("fn", "arg"), CASES, ids=lambda each: getattr(each, "__name__", repr(each)))
def test_as_eager(fn: Callable[..., Any], arg: Any) -> None:
    compiled = torchdynamo.compile(fn, backend="eager")
    for _ in range(2):
        assert repr(compiled(X, arg)) == repr(fn(X, arg))


def test_what_is_cut_off_by_a_tensor_is_one_break() -> None:
    def ends(x, n):
        return (x * 2)[:, n:] + 1

    found = torchdynamo.explain(ends)(X, N)
    assert len(found.breaks) == 1 and len(found.graphs) == 2


def test_numbers_that_change() -> None:
    compiles = 0

    def backend(gm: Any, example_inputs: Any) -> Any:
        nonlocal compiles
        compiles += 1
        return gm.forward

    compiled = torchdynamo.compile(lambda x, s: x[s] + 1, backend=backend)
    for stop in (1, 2, 3, 5, 6):
        assert torch.equal(compiled(X, slice(0, stop)), X[:stop] + 1)
    assert compiles == 2

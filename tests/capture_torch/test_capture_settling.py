"""Numbers that are others in each call stop leading to versions: what asks for their values is left to Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from counting import Counting

import torchdynamo

HELD = SimpleNamespace()
CALLS, SETTLED = 9, 5  # of each function; how many of them may compile


def schedule(x, i):
    return x * (i / 3 if i < 3 else 0.5 * (1 + math.cos(math.pi * (i - 3) / 17)))


def kept(x, i):
    HELD.loss = float(i) * 0.5
    return x * HELD.loss


CASES: dict[str, Callable[[Any, Any], Any]] = {
    "cos": lambda x, i: x * math.cos(i * 0.1),
    "exp": lambda x, i: x * math.exp(-i / 10),
    "sqrt": lambda x, i: x * math.sqrt(i + 1),
    "log": lambda x, i: x * math.log(i + 2),
    "a power of a float": lambda x, i: x * (0.9**i),
    "a power with an exponent that is none": lambda x, i: x * (1 - (1 + i / 1.5) ** -0.66),
    "min": lambda x, i: x * min((1 + i) / (10 + i), 0.99),
    "max": lambda x, i: x * max(0.1, 1 - i / 20),
    "a schedule": schedule,
    "round": lambda x, i: x * round(i * 0.37, 2),
    "sides that take turns": lambda x, i: x + 1 if i % 3 == 0 else x * 2,
    "a function of NumPy": lambda x, i: x * float(np.cos(i * 0.1)),
    "a number of NumPy": lambda x, i: x * np.float64(i * 0.37),
    "a text": lambda x, i: (x * 2, f"step {i}"),
    "an attribute": kept,
    "an operator": lambda x, i: torch.add(x, x, alpha=i * 0.1).clamp(max=i * 0.3),
    "a fact": lambda x, i: x if math.isfinite(i * 0.1) else -x,
    "a fact of a function": lambda x, i: x * 2 if math.cos(i * 0.9) > 0 else x,
}


def same(a: Any, b: Any) -> bool:
    return torch.equal(a[0], b[0]) and a[1:] == b[1:] if isinstance(a, tuple) else torch.equal(a, b)


def compiled_in(fn: Callable[[Any, Any], Any], kind: type, backend: str) -> list[int]:
    """How many graphs each call makes; each gives what eager gives."""
    torchdynamo.reset()
    counting, x, made = Counting(backend), torch.rand(4), []
    compiled = torchdynamo.compile(fn, backend=counting)
    for n in range(CALLS):
        before = len(counting.graphs)
        assert same(compiled(x, kind(n * 1.01)), fn(x, kind(n * 1.01)))
        made.append(len(counting.graphs) - before)
    return made


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("name", CASES)
def test_a_number_settles(name: str, kind: type) -> None:
    made = compiled_in(CASES[name], kind, "eager")
    assert not any(made[SETTLED + 1 :]), made


@pytest.mark.parametrize("name", ["cos", "sqrt", "a power of a float", "a schedule"])
def test_functions_of_numbers_are_computed_in_graphs_of_any_backend(name: str) -> None:
    compiled_in(CASES[name], int, "aot_eager")


def test_a_function_that_is_not_asked_for_has_few_versions_that_are_not_used() -> None:
    backend, x = Counting(), torch.rand(4)

    def scaled(x, name):
        return x * len(name)

    def named(x, name):
        return x * len(name)

    torchdynamo.reset()
    with torchdynamo.optimize(backend):
        for n in range(40):
            assert torch.equal(scaled(x, "a" * n), x * n)
    few = len(backend.graphs)
    compiled = torchdynamo.compile(named, backend=backend)
    for n in range(7):
        compiled(x, "a" * n)
    assert few <= 6
    assert len(backend.graphs) == few + 7


def test_versions_that_are_used_pay_for_others() -> None:
    backend, x = Counting(), torch.rand(4)

    def scaled(x, name):
        return x * len(name)

    torchdynamo.reset()
    with torchdynamo.optimize(backend):
        for n in range(6):
            for _ in range(30):
                assert torch.equal(scaled(x, "a" * n), x * n)
    assert len(backend.graphs) == 6


def test_functions_without_an_operator_stay_python() -> None:
    backend, x = Counting(), torch.rand(4)

    def chosen(x, n):
        return x if n else (x, 1)

    torchdynamo.reset()
    with torchdynamo.optimize(backend):
        for n in range(10):
            assert chosen(x, n % 2) is not None
    assert torchdynamo.eval_frame.cache_entries(chosen) == []
    assert not backend.graphs

"""Floats and integers that are others in each call are inputs; what they decide makes a version for each side."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from counting import Counting
from hypothesis import given, settings
from hypothesis import strategies as st

import torchdynamo

NAN = math.nan
Function = Callable[[torch.Tensor, Any], Any]


def warmed(x: torch.Tensor, step: Any) -> Any:
    """Half a cosine with a floor, as schedules of learning rates have it."""
    if step < 3:
        return x * (step / 3)
    return x * max(0.1, 0.5 * (1.0 + math.cos(math.pi * 0.8 * (step - 3) / 9)))


def decayed(x: torch.Tensor, step: Any) -> Any:
    """An exponential average that warms up."""
    return x * min(max(1 - (1 + step / 1.0) ** -0.75, 0.0), 0.9)


# By name: the function, and how many versions there are at most: one for a constant, one for each side.
DECIDED: dict[str, tuple[Function, int]] = {
    "a branch": (lambda x, s: x * s if s > 0.5 else x + s, 3),
    "two branches": (lambda x, s: x if s < 0.25 else x * 2 if s < 0.6 else x * s, 4),
    "a chained comparison": (lambda x, s: x * s if 0.2 <= s < 0.8 else x - s, 4),
    "a conditional expression": (lambda x, s: x * (s if s < 0.3 else 1 - s), 3),
    "min": (lambda x, s: x * min(s, 0.9), 3),
    "clamped": (lambda x, s: x * max(0.1, min(s, 0.9)), 4),
    "of a sum of it": (lambda x, s: x * s if s * 2 + 1 - s / 3 > 1.5 else x, 3),
    "rounded down": (lambda x, s: x * s if s // 0.3 == 1.0 else x, 3),
    "a remainder": (lambda x, s: x * s if s % 0.5 > 0.25 else x, 3),
    "a root": (lambda x, s: x * s if math.sqrt(s) > 0.7 else x, 3),
    "a cosine": (lambda x, s: x * s if math.cos(s) > 0.8 else x, 3),
    "a logarithm": (lambda x, s: x * s if math.log(s + 1) > 0.4 else x, 3),
    "an exponential": (lambda x, s: x * s if math.exp(-s) > 0.6 else x, 3),
    "no nan": (lambda x, s: x * (1 if math.isnan(s) else s), 2),
    "finite": (lambda x, s: x * s if math.isfinite(s) else x, 2),
    "its truth": (lambda x, s: x * s if s else x, 2),
    "not": (lambda x, s: x if not s else x * s, 2),
    "and": (lambda x, s: x * s if s > 0.2 and s < 0.9 else x, 4),
    "a power": (lambda x, s: x * s**0.75, 2),
    "a power of a sum": (decayed, 4),
    "the power of a constant": (lambda x, s: x * 0.99**s, 2),
    "functions of math": (lambda x, s: x * math.exp(-s) * math.log(s + 1) * math.pow(s, 2.0) * math.cos(s), 2),
    "a schedule": (warmed, 4),
    "in a list": (lambda x, s: x * sum([s, s * 2]) if [s][0] > 0.5 else x, 3),
    "a tensor's argument": (lambda x, s: torch.lerp(x, x * 2, s).clamp(max=s), 2),
}


def values(kind: str) -> list[Any]:
    drawn = random.Random(7)
    return list(range(1, 25)) if kind == "integers" else [drawn.random() for _ in range(24)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["floats", "integers"])
@pytest.mark.parametrize("name", DECIDED)
def test_there_is_a_version_for_each_side(name: str, kind: str) -> None:
    fn, most = DECIDED[name]
    backend = Counting()
    compiled = torchdynamo.compile(fn, backend=backend)
    x = torch.tensor([1.0, -2.0, 0.3])
    for value in values(kind):
        assert torch.equal(compiled(x, value), fn(x, value)), value
    assert len(backend.graphs) <= most


EDGES = [0.4, 0.6, 0.0, -0.0, NAN, math.inf, -math.inf, -1.5, 1e300, 5e-324, 0.5]


@pytest.mark.parametrize("name", DECIDED)
def test_edges_of_floats_are_as_in_eager(name: str) -> None:
    """The same result or the same error, whatever float comes after two that were usual."""
    fn = DECIDED[name][0]
    compiled = torchdynamo.compile(fn, backend="eager")
    x = torch.tensor([1.0, -2.0, 0.3])
    for value in EDGES:
        assert outcome(compiled, x, value) == outcome(fn, x, value), value


def outcome(fn: Function, x: torch.Tensor, value: float) -> str:
    try:
        return repr(fn(x, value))
    except (ArithmeticError, ValueError, TypeError, RuntimeError) as error:
        return repr(error)


def test_what_a_float_decides_after_a_break() -> None:
    """`if loss < best`, where both were read from tensors before."""
    backend = Counting()

    def better(x: torch.Tensor, best: float) -> tuple[torch.Tensor, float]:
        loss = (x * x).sum().item()
        if loss < best:
            best, x = loss, x + 0
        return x * 0.9, best

    compiled = torchdynamo.compile(better, backend=backend)
    found: list[Any] = []
    for fn in (better, compiled):
        x, best = torch.tensor([1.0, 2.0]), math.inf
        for step in range(20):
            x, best = fn(x + (0.5 if step % 3 == 0 else 0.0), best)
        found.append((x, best, len(backend.graphs)))
    assert torch.equal(found[0][0], found[1][0]) and found[0][1] == found[1][1]
    assert found[1][2] <= 4


# -- random conditions -------------------------------------------------------------------------------------------------
ATOMS = ["s", "n", "2", "0.5", "3", "-1.5"]
BINARY = ["({} + {})", "({} - {})", "({} * {})", "({} / {})", "({} // {})", "({} % {})", "min({}, {})", "max({}, {})"]
UNARY = ["(-{})", "abs({})", "float({})", "int({})", "math.floor({})", "math.sqrt({})", "math.cos({})", "math.exp({})"]
POWERS = ["({} ** 2)", "({} ** 0.5)", "(0.9 ** {})"]
expressions = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: (
        st.builds(str.format, st.sampled_from(BINARY), inner, inner)
        | st.builds(str.format, st.sampled_from(UNARY + POWERS), inner)
    ),
    max_leaves=5,
)
comparisons = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
numbers = st.floats(-4, 4).map(lambda number: round(number, 2)) | st.sampled_from(EDGES)


@settings(max_examples=int(os.environ.get("FUZZ_CONDITIONS", "40")), deadline=None)
@given(expressions, expressions, comparisons, st.lists(st.tuples(numbers, st.integers(-5, 9)), min_size=4, max_size=7))
def test_random_conditions_are_as_in_eager(left: str, right: str, how: str, values: list[tuple[float, int]]) -> None:
    names: dict[str, Any] = {"math": math}
    exec(f"def fn(x, s, n):\n    return x * {left} if {left} {how} {right} else x - {right}\n", names)
    fn = names["fn"]
    compiled = torchdynamo.compile(fn, backend="eager")
    x = torch.tensor([1.0, -2.0, 0.3])
    for s, n in values:
        assert outcome(partial(compiled, n=n), x, s) == outcome(partial(fn, n=n), x, s)


@pytest.mark.parametrize("op", ["==", "!=", "<", ">="])
def test_conditions_on_what_tensors_hold_are_compared(op: str) -> None:
    names: dict[str, Any] = {}
    exec(f"def fn(x, y):\n    return x + ((x.sum().item() > 0) {op} (y.sum().item() > 0))", names)
    fn = torchdynamo.compile(names["fn"], backend="eager", fullgraph=True)
    for x in (torch.ones(2), -torch.ones(2)):
        for y in (torch.ones(2), -torch.ones(2)):
            assert torch.equal(fn(x, y), names["fn"](x, y))


@pytest.mark.parametrize("division", ["n % n", "n // n", "(2 * n) % n", "divmod(2 * n, n)[0]", "7 % n"])
def test_a_number_divided_by_itself_raises_for_zero(division: str) -> None:
    fn = eval(f"lambda x, n: x + {division}")
    compiled = torchdynamo.compile(fn, backend="eager", dynamic=True)
    for n in (5, 6):
        assert torch.equal(compiled(torch.ones(1), n), fn(torch.ones(1), n))
    with pytest.raises(ZeroDivisionError, match="by zero"):
        compiled(torch.ones(1), 0)

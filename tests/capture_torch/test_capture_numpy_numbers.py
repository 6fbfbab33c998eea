"""NumPy's numbers among the arguments: as dynamic as Python's, of the type that they have in eager."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import torchdynamo

X = torch.arange(20.0)
PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "times": lambda x, k: x * k,
    "reflected": lambda x, k: (k * x, k + x, k - x, k / x, x**k),
    "arithmetic": lambda x, k: (k + 1, k * 2 - k, 2 * k, -k, +k, k / 2, x * (k * 2 + 1)),
    "compared": lambda x, k: (k > 1, k == -1, x + k),
    "converted": lambda x, k: (x * float(k), k.item(), k.dtype, k.shape, type(k), isinstance(k, float)),
    "keyword": lambda x, k: torch.add(x, x, alpha=k),
    "made": lambda x, k: (torch.tensor(k), torch.tensor([k, k]), torch.as_tensor(k), torch.full((2,), k), x + 1),
    "with one of Python's": lambda x, k: (k + x.shape[0], k * 1.5, x + 1),
}
INTEGERS: dict[str, Callable[[Any, Any], Any]] = {
    "size": lambda x, k: x.new_zeros(k) + 1,
    "index": lambda x, k: (x[k], x[k:], x.narrow(0, k, 1)),
    "divided": lambda x, k: (k // 2, k % 3, k / 2, x + k),
    "to int": lambda x, k: x * int(k),
}
# What needs the number itself is compiled for each, and right.
SETTLED: dict[str, Callable[[Any, Any], Any]] = {
    "key": lambda x, k: (x + {3: 1, 4: 2}.get(k, 9), k in (3, 4)),
    "text": lambda x, k: (f"{k}", str(k), repr(k), x + 1),
    "of NumPy": lambda x, k: (np.sqrt(k), abs(k), k**2, divmod(k, 2), min(k, 4), x + 1),
    "branch": lambda x, k: x + 1 if k > 4 else x - 1,
}


def seen(result: Any) -> Any:
    """Types and values."""
    if isinstance(result, (tuple, list)):
        return [seen(each) for each in result]
    return type(result), getattr(result, "dtype", None), repr(result)


def compiles(program: Any, numbers: list[Any]) -> int:
    """Call it with all of the numbers, compare, and return how often it was compiled."""
    made = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        made.append(graph)
        return graph.forward

    compiled = torchdynamo.compile(program, backend=backend, fullgraph=True)
    for number in numbers:
        assert seen(compiled(X, number)) == seen(program(X, number)), number
    return len(made)


@pytest.mark.parametrize("kind", [np.int64, np.float64], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", PROGRAMS)
def test_two_compiles_for_all_values(name: str, kind: Any) -> None:
    assert compiles(PROGRAMS[name], [kind(n) for n in range(2, 10)]) == 2


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_sizes(name: str) -> None:
    assert compiles(INTEGERS[name], [np.int64(n) for n in range(2, 10)]) == 2


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int32, np.uint8], ids=lambda kind: kind.__name__)
def test_other_types_as_operands(kind: Any) -> None:
    """Their own arithmetic rounds or wraps, and is NumPy's."""
    for name in ("times", "made"):
        torchdynamo.reset()
        assert compiles(PROGRAMS[name], [kind(n) for n in range(2, 8)]) == 2
    torchdynamo.reset()
    assert compiles(lambda x, k: (k * 2 + 1, x + k), [kind(n) for n in range(2, 5)]) == 3


@pytest.mark.parametrize("name", SETTLED)
def test_what_needs_the_number(name: str) -> None:
    assert compiles(SETTLED[name], [np.int64(n) for n in range(2, 8)]) <= 6


def test_integers_that_wrap_around() -> None:
    with np.errstate(over="ignore"):
        compiles(lambda x, k: (k * k, k + k, x + 1), [np.int64(n) for n in (2, 3, 1 << 40, (1 << 62) + 1, -(1 << 63))])


def test_another_type_is_another_version() -> None:
    assert compiles(lambda x, k: (x * k, k + 1), [np.int64(2), np.int64(3), np.float64(2.5), 4, np.int64(5)]) == 4


def test_the_same_number_twice() -> None:
    def program(x: Any, k: Any) -> Any:
        return k[0] is k[1], k[0] == k[1], x * k[0] + k[1]

    pairs = [(np.int64(n), np.int64(n)) for n in (300, 400)] + [(k, k) for k in map(np.int64, (500, 600))]
    compiles(program, pairs)


@pytest.mark.parametrize("number", [np.datetime64("2020-01-01"), np.timedelta64(3, "D"), np.longdouble(1) / 3])
def test_dates_and_other_scalars_without_a_plain_value_end_the_graph(number: Any) -> None:
    def fn(x: torch.Tensor) -> Any:
        return x * 2, str(number)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = torchdynamo.compile(fn, backend="eager")(torch.ones(2))
    assert torch.equal(found[0], torch.full((2,), 2.0)) and found[1] == str(number)


def test_a_time_span_of_another_unit_is_another() -> None:
    spans = [np.timedelta64(1, "ns"), np.timedelta64(1, "ps")]

    def fn(x: torch.Tensor) -> Any:
        return x * 2, str(spans[0])

    compiled = torchdynamo.compile(fn, backend="eager")
    assert compiled(torch.ones(2))[1] == "1 nanoseconds"
    spans.reverse()
    assert compiled(torch.ones(2))[1] == "1 picoseconds"

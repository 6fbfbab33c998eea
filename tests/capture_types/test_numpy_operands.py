"""What may be unknown to NumPy in a graph: no number that decides the type or shape of a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from test_numpy_programs import seen

import torchdynamo
from torchdynamo.capture.torch.numpy_tables import FUNCTIONS, METHODS, Operands

BY_CONTENTS: list[Callable[[np.ndarray], Any]] = [
    lambda a: [len(part) for part in np.split(a, np.array([1, 2]) + (a[:2] > 2))],
    lambda a: [len(part) for part in np.array_split(a, a.argmax() + 1)],
    lambda a: np.diag(a, a.argmax()).shape,
    lambda a: np.fft.fft(a, n=a.argmax() + 1).shape,
    lambda a: np.rot90(a.reshape(2, 2)[:, :1], a.argmax()).shape,
    lambda a: a.reshape(1, 4).sum(axis=a.argmax() % 2).shape,
    lambda a: a.reshape(1, 4).mean(a.argmax() % 2).shape,
    lambda a: np.expand_dims(a, a.argmax() % 2).shape,
    lambda a: np.concatenate([a[None], a[None]], a.argmax() % 2).shape,
    lambda a: np.diff(a, a.argmax()).shape,
    lambda a: np.pad(a, a.argmax()).shape,
    lambda a: np.repeat(a, a.argmax()).shape,
    lambda a: np.tensordot(a[None], a[None].T, a.argmax() % 2).shape,
]
DRAWN: list[Callable[[int], Any]] = [
    lambda n: np.random.randn(n, 2).sum(),
    lambda n: np.random.permutation(n),
    lambda n: np.random.normal(size=n).shape,
    lambda n: np.random.uniform(0, 1, (2, n)).shape,
    lambda n: len(np.random.choice(9, n, replace=False)),
    lambda n: (np.random.choice(n), np.random.normal(n, n), np.random.randint(0, n, 2)),
]


def agrees(program: Callable[[Any], Any]) -> bool:
    """Return whether what is compiled gives what eager gives, in calls with other contents and draws."""
    torchdynamo.reset()
    given = [torch.tensor([1.0, 5, 2, 4]).roll(by) for by in range(3)]
    compiled = torchdynamo.compile(program, backend="eager")
    found = []
    for fn in (program, compiled):
        np.random.seed(0)
        results = [seen(fn, (x.clone(),)) for x in given]
        found.append((results, np.random.rand()))
    return bool(found[0] == found[1])


@pytest.mark.parametrize("at", range(len(BY_CONTENTS)))
def test_contents_that_decide_a_shape(at: int) -> None:
    fn = BY_CONTENTS[at]
    assert agrees(lambda x: (x + 1, fn(x.numpy())))


@pytest.mark.parametrize("at", range(len(DRAWN)))
def test_drawn_sizes(at: int) -> None:
    fn = DRAWN[at]
    assert agrees(lambda x: (x + 1, fn(np.random.randint(1, 7))))


def test_numbers_that_decide_the_shapes_of_tensors() -> None:
    """They end the graph; as factors, indices and contents they are in it."""

    def sizes(x: torch.Tensor) -> Any:
        a = x.numpy().astype(int)
        return torch.zeros(a[0]), x.repeat(a[1]), x.view(2, 2).sum(a[2] % 2), x[: a[3]], x.new_ones([a[0], 2])

    def numbers(x: torch.Tensor) -> Any:
        a = x.numpy().astype(int)
        return x * a[0], a[1] - x, x[a[2] % 4], x.clone().fill_(a[3]), torch.tensor([a[0], a[1]]), x.clamp(max=a[0])

    assert agrees(sizes)
    assert agrees(numbers)
    torchdynamo.reset()
    torchdynamo.compile(numbers, backend="eager", fullgraph=True)(torch.ones(4))


def test_operands_that_decide_no_shape() -> None:
    """They stay in the graph."""

    def program(x: torch.Tensor) -> Any:
        a = x.numpy()
        return (
            np.roll(a, a.argmax()),
            np.percentile(a, a[0] * 9),
            np.average(a, weights=a),
            np.interp(a, a, a, left=a[0]),
            a.sum(where=a > 2, initial=a[1]),
            np.clip(a, a.min(), max(2, 3)),
        )

    torchdynamo.reset()
    compiled = torchdynamo.compile(program, backend="eager", fullgraph=True)
    for by in range(3):
        x = torch.tensor([1.0, 5, 2, 4]).roll(by)
        assert seen(compiled, (x,)) == seen(program, (x,))


def test_writes_that_an_argument_asks_for() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        a = x.numpy()
        np.nan_to_num(a, copy=False, nan=7.0)
        np.median(a, None, None, True)
        return x * 2

    assert agrees(lambda x: program(x / (x - 1)))


def test_rows_pair_arguments_with_rules() -> None:
    row = Operands(("a", ".", ">out", "-b"))
    assert row.rules([1, 2, 3, 4, 5], {"a": 6, "out": 7, "b": 8, "c": 9}) == [
        *[("a", 1), (".", 2), (">out", 3), ("-b", 4), (".", 5)],
        *[("a", 6), (">out", 7), ("-b", 8), (".", 9)],
    ]
    assert Operands((".", "*")).rules([1, 2, 3], {}) == [(".", 1), ("*", 2), ("*", 3)]


def test_rows_are_of_functions_that_are_there() -> None:
    """A name in the tables that NumPy does not have is of another version, and a name is in one row only."""
    newer = {"cumulative_sum", "trapezoid", "ptp"}
    for name in FUNCTIONS:
        owner, _, short = name.rpartition(".")
        assert hasattr(getattr(np, owner) if owner else np, short) or name in newer
    assert all(hasattr(np.ndarray, name) or name in newer for name in METHODS)


SCALARS = [np.bool_(True), np.int8(1), np.uint64(1), np.uint64(2**63), np.float16(1.5), np.float64(1.5)]
SCALARS += [np.complex64(2 + 1j), np.complex128(2 + 1j)]
OPERATORS: list[Callable[[torch.Tensor, Any], Any]] = [
    lambda x, k: x * k,
    lambda x, k: k - x.int(),
    lambda x, k: x.int() + k,
    lambda x, k: torch.add(x.int(), k),
    lambda x, k: torch.full((2,), k),
    lambda x, k: x.new_full((2,), k),
    lambda x, k: (x > 2) | k,
    lambda x, k: torch.where(x > 2, x.int(), k),
    lambda x, k: x.sum(0, keepdim=k),
    lambda x, k: x[k],
    lambda x, k: torch.ones(3).__setitem__(0, k),
    lambda x, k: torch.tensor([k, k]),
    lambda x, k: torch.ops.aten.sum.dim_IntList(x, [0], k),
    lambda x, k: torch.arange(k),
]


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("k", SCALARS, ids=lambda k: f"{type(k).__name__}({k})")
def test_numbers_as_operands_of_operators(k: Any) -> None:
    """Of NumPy's numbers, operators take only integers and those that derive from Python's for what they are."""
    for at, fn in enumerate(OPERATORS):
        torchdynamo.reset()
        x = torch.tensor([1.0, 5, 2, 4])
        assert seen(torchdynamo.compile(fn, backend="eager"), (x, k)) == seen(fn, (x, k)), at

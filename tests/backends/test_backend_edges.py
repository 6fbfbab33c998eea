"""Operators at their edges under Inductor: nan, infinities, -0.0, empty tensors, division by zero, bad indices.

What differs from eager, and is not mended, has a row in docs/limits.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.backends.cpp_checks import keep_exceptions

F = torch.nn.functional
nan, inf = float("nan"), float("inf")
X = torch.tensor([0.0, -0.0, 1.0, -1.0, nan, inf, -inf, 3.4e38, -3.4e38, 0.5, 1.5, 2.5, -2.5, 1e-8, 86.0, -104.0, 3.0])
A, B = (each.contiguous() for each in torch.broadcast_tensors(X[:, None], X[None, :]))
INTS = {
    torch.int64: torch.tensor([0, 1, -1, 7, -7, 2**63 - 1, -(2**63), 2**31]),
    torch.int32: torch.tensor([0, 1, -1, 7, -7, 2**31 - 1, -(2**31)], dtype=torch.int32),
    torch.int8: torch.tensor([0, 1, -1, 127, -128, 100], dtype=torch.int8),
    torch.uint8: torch.tensor([0, 1, 255, 128], dtype=torch.uint8),
}
SMALL = torch.tensor([[0.0, 1, -1], [nan, 1, 2], [inf, -inf, 1], [-inf, -inf, -inf], [inf, inf, 1], [1, 1, 1]])
ROWS = torch.arange(12.0).reshape(3, 4)
LAST, PLACES = torch.tensor([-1, 0]), torch.tensor([2, 0])

FUNCTIONS = (
    "abs neg sqrt rsqrt exp expm1 log log1p sin tan asin acos atan sinh cosh tanh asinh atanh sigmoid floor ceil round "
    "trunc frac reciprocal square relu isnan isinf isfinite signbit sgn sign lgamma nan_to_num logical_not log2 erfinv"
).split()
PAIRS = (
    "add sub mul div fmod remainder pow atan2 maximum minimum hypot copysign logaddexp floor_divide xlogy eq ne lt ge "
    "logical_and nextafter heaviside"
).split()
ACTIVATIONS = "silu elu selu celu softplus hardswish leaky_relu mish logsigmoid hardshrink".split()
REDUCTIONS = "sum mean prod amax amin argmax argmin softmax log_softmax logsumexp cumsum nansum".split()


def functions(x: Any) -> list[Any]:
    return [*(getattr(torch, name)(x) for name in FUNCTIONS), x.double().expm1(), x.double().atanh()]


def pairs(a: Any, b: Any) -> list[Any]:
    return [getattr(torch, name)(a, b) for name in PAIRS]


def activations(x: Any) -> list[Any]:
    return [getattr(F, name)(x) for name in ACTIVATIONS]


def with_numbers(x: Any) -> list[Any]:
    products = [x * 0, 0 * x, x - x, x + 0.0, x * 1.0, x.neg().neg(), torch.where(x != x, 0.0, x)]
    divisions = [0 / x, x / 0, x / x, x % 2, x // 2, x % -3.0, x % inf, x // 0, x % 0, torch.fmod(x, 0)]
    powers = [x**0, x**-1, x**-0.5, x**0.5, 2**x, 0**x]
    return [*products, *divisions, *powers, torch.lerp(x, x.flip(0), 0.5)]


def integers(*tensors: Any) -> list[Any]:
    found: list[Any] = []
    for a in tensors:
        b, divisor = a.flip(0), a.flip(0) // 4 * 4 + 2
        found += [a + b, a - b, a * b, a & b, a ^ b, a**2, a * 100, a << 1, a >> 1, a / b, a // 3, a % 3]
        found += [a // divisor, a % divisor, torch.fmod(a, divisor), torch.div(a, divisor, rounding_mode="trunc")]
        found += [a.sum(), a.prod(), a.cumsum(0), a.max(), a.to(torch.int8), a.to(torch.uint8), a.double(), a.bool()]
    return found


def empty(rows: Any, one: Any) -> list[Any]:
    sums = [one.sum(), one.prod(), one.mean(), one.any(), one.all(), rows.sum(0), rows.mean(0), one.std(), one.norm()]
    more = [rows.sum(1), rows.amax(1), rows.softmax(1), rows.logsumexp(0), rows @ torch.ones(3, 4), rows.t() @ rows]
    return [
        *sums,
        *more,
        torch.cat([one, torch.ones(2)]),
        one.cumsum(0),
        F.layer_norm(rows, (3,)),
        F.mse_loss(one, one),
    ]


def reductions(x: Any) -> list[Any]:
    return [getattr(torch, name)(x, 1) for name in REDUCTIONS] + [x.any(1), x.norm(dim=1), x.std(1), x.sort(1)[0]]


def indices(x: Any, last: Any, places: Any) -> list[Any]:
    taken = [
        x[last],
        x.take(last),
        x[-2:],
        x[100:],
        x[5:2],
        x.select(0, -1),
        x[places[:0]],
        x[:, last],
        x[last, places],
    ]
    put = [x.index_fill(0, last, 2.0), x.index_fill(-1, last, torch.tensor(1.0)), x.index_put((last,), x[:2])]
    kept = [x.index_select(-1, places), x.index_add(-1, places, x[:, :2], alpha=2), x.index_copy(0, places, x[:2])]
    along = [x.gather(0, places[:, None]), x.scatter(0, places[:, None], 1.0), F.embedding(places, x, padding_idx=0)]
    return [*taken, *put, *kept, *along, F.one_hot(places, 3), x.roll(-7, 0), x.masked_fill(x > 4, -inf)]


TABLES: dict[str, tuple[Callable[..., list[Any]], tuple[Any, ...]]] = {
    "functions": (functions, (X,)),
    "pairs": (pairs, (A, B)),
    "activations": (activations, (X,)),
    "with numbers": (with_numbers, (X,)),
    "integers": (integers, tuple(INTS.values())),
    "empty": (empty, (torch.empty(0, 3), torch.empty(0))),
    "reductions": (reductions, (SMALL,)),
    "indices": (indices, (ROWS, LAST, PLACES)),
}


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same values but for rounding, nan and infinities in the same places, and zeros of the same sign."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    zeros = (a == 0) & (b == 0)
    signs = torch.equal(a.signbit() & zeros, b.signbit() & zeros)
    return signs and torch.allclose(a, b, rtol=2e-5, atol=0, equal_nan=True)


LONG = ("activations", "with numbers", "reductions")
EDGES = [pytest.param(name, False, marks=pytest.mark.long) if name in LONG else (name, False) for name in TABLES]


@pytest.mark.parametrize(("name", "dynamic"), [*EDGES, ("indices", True)])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_values_at_edges(name: str, dynamic: bool) -> None:
    table, given = TABLES[name]
    with torch.no_grad():
        compiled = torchdynamo.compile(table, backend="inductor", fullgraph=True, dynamic=dynamic)
        found, expected = compiled(*given), table(*given)
    wrong = [at for at, (a, b) in enumerate(zip(found, expected, strict=True)) if not same(a, b)]
    assert wrong == [], [(expected[at], found[at]) for at in wrong]


# -- what eager refuses ------------------------------------------------------------------------------------------------
INDICES: dict[str, Callable[[Any, Any], Any]] = {
    "index_select": lambda x, i: x.index_select(0, i),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
    "gather": lambda x, i: x.gather(0, i[None]),
    "scatter": lambda x, i: x.scatter(0, i[None], 1.0),
    "embedding": lambda x, i: F.embedding(i, x),
}
DIVISIONS: dict[str, Callable[[Any, Any], Any]] = {
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "fmod": torch.fmod,
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "number // tensor": lambda a, b: 7 // b,
    "// 0": lambda a, b: a // 0,
    "% 0": lambda a, b: a % 0,
}


def refused() -> Iterator[Any]:
    bad = {"negative": torch.tensor([-1, 0]), "late": torch.tensor([3, 0])}
    for kind, index in bad.items():
        for name, fn in INDICES.items():
            yield pytest.param(fn, ROWS, index, id=f"{name}, {kind}")
    yield pytest.param(lambda x, i: x[i], ROWS, bad["late"], id="index, late")
    yield pytest.param(lambda x, i: F.nll_loss(x[:2], i + 9), ROWS, bad["late"], id="nll_loss, late")
    for name, fn in DIVISIONS.items():
        yield pytest.param(fn, torch.tensor([5, 6]), torch.tensor([2, 0]), id=f"{name}, by zero")


@pytest.mark.parametrize(("fn", "x", "y"), list(refused()))
def test_what_eager_refuses(fn: Any, x: Any, y: Any) -> None:
    with pytest.raises((RuntimeError, IndexError)) as expected:
        fn(x, y)
    with warnings.catch_warnings(), pytest.raises(expected.type) as found:
        warnings.simplefilter("error")
        torchdynamo.compile(fn, backend="inductor")(x.clone(), y)
    assert str(found.value) == str(expected.value)


THREADS = """
    import torch, torchdynamo
    torch.set_num_threads(2)
    places = torch.arange(4000) % 1000
    places[3000] = 1000
    try:
        torchdynamo.compile(lambda x, i: x.index_select(0, i) * 2, backend="inductor")(torch.ones(1000, 512), places)
    except (IndexError, RuntimeError) as error:
        print(error)
"""


@pytest.mark.long
def test_what_one_of_several_threads_refuses() -> None:
    """An error in a kernel's threads ended the process."""
    run = [sys.executable, "-c", textwrap.dedent(THREADS)]
    done = subprocess.run(run, env={**os.environ, "OMP_NUM_THREADS": "2"}, capture_output=True, text=True, check=True)
    assert done.stdout == "index out of range in self\n"


def test_kernels_without_checks_stay_as_they_are() -> None:
    source = "#pragma omp parallel\n{\n#pragma omp for\nfor(;;)\n{\n}\n}\n"
    assert keep_exceptions(source) == source


@pytest.mark.filterwarnings("error::torchdynamo.errors.FallbackWarning")
@pytest.mark.parametrize("accumulate", [False, True])
def test_values_that_are_spread_for_one_size_only(accumulate: bool) -> None:
    """What is written is a part of the input whose size varies, and of size 1 in the last call."""

    def put(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return x.index_put((at,), x[1:3], accumulate)

    compiled = torchdynamo.compile(put, backend="inductor", dynamic=True)
    for size in (3, 4, 2):
        x, at = torch.arange(2.0 * size).view(size, 2), torch.tensor([0, 1])
        assert torch.equal(compiled(x, at), put(x, at))


def test_values_of_which_a_tensor_says_how_many_there_are() -> None:
    def put(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return x.index_put((at,), x[x[:, 0] > 0])

    compiled = torchdynamo.compile(put, backend="inductor", dynamic=True, fullgraph=True)
    for rows in ([0.0, 1.0, 2.0], [0.0, 1.0, -1.0]):  # two, and one for both places
        x, at = torch.tensor([[row, 2 * row] for row in rows]), torch.tensor([0, 1])
        assert torch.equal(compiled(x, at), put(x, at))

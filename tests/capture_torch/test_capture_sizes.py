"""Sizes that change: compiled at most twice, whatever is done with them, and right at every size."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from counting import Counting
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pictures import assert_alike
from torch_cases_sizes import CASES, SizeCase

import torchdynamo
from torchdynamo import _native
from torchdynamo.core.source import Source
from torchdynamo.graph.numbers import Numbers
from torchdynamo.graph.shape_env import Snapshot

SIZES = (5, 7, 1, 0, 2, 8, 3, 16)
EXAMPLES = int(os.environ.get("FUZZ_SIZES", "0"))  # set by `make fuzz`: so many, and other ones each time


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fn.__name__)
def test_uses_of_sizes(case: SizeCase) -> None:
    backend = Counting()
    compiled = torchdynamo.compile(case.fn, backend=backend, fullgraph=True)
    with torchdynamo.config.patch(cache_size_limit=16, suppress_errors=False):
        for size in SIZES:
            x = torch.randn(size, 3)
            try:
                expected = case.fn(x)
            except (RuntimeError, IndexError, ValueError) as error:
                with pytest.raises(type(error)):
                    compiled(x)
                continue
            assert_alike(compiled(x), expected)
    assert len(backend.graphs) <= case.compiles


def test_operators_that_are_made_of_themselves() -> None:
    """Of sizes that might be negative, torch's own rule is asked where taking apart leads back to the same operator."""
    kernel = torch.ones(4, 3, 3, 3)

    def patches(x: Any) -> Any:
        return torch.nn.functional.conv2d(x, kernel, stride=8).flatten(2).transpose(1, 2)

    def joined(x: Any) -> Any:
        return torch.cat((patches(x)[:, :1], patches(x)), 1)

    torchdynamo.reset()
    backend = Counting()
    compiled = torchdynamo.compile(joined, backend=backend, fullgraph=True)
    for side in (16, 19, 23, 32):
        x = torch.randn(2, 3, side, side)
        assert_alike(compiled(x), joined(x))
    assert len(backend.graphs) == 2


# -- random programs --------------------------------------------------------------------------------------------------
STEPS: list[Callable[[Any, Any, int], Any]] = [
    lambda x, y, k: x + y,
    lambda x, y, k: x * (x.shape[0] + k),
    lambda x, y, k: torch.cat([x, y])[: x.shape[0]],
    lambda x, y, k: x - y.sum(0) / (y.shape[0] + 1),
    lambda x, y, k: x.flip(0),
    lambda x, y, k: torch.relu(x).t().t(),
    lambda x, y, k: x.reshape(-1, 3) if x.numel() >= 0 else x,
    lambda x, y, k: x.view(x.size(0), 3, 1).squeeze(-1),
    lambda x, y, k: torch.where(x > k, x, y),
    lambda x, y, k: x + torch.arange(len(x)).unsqueeze(1),
    lambda x, y, k: torch.cat([x[x.shape[0] // 2 :], x[: x.shape[0] // 2]]),
    lambda x, y, k: x.softmax(1) + x.new_zeros(x.shape[0], 3),
    lambda x, y, k: x * (y.t() @ y).sum(),
    lambda x, y, k: torch.nn.functional.pad(x, (0, 1))[:, :3],
    lambda x, y, k: x.cumsum(0) + min(x.shape[0], k),
]


@settings(max_examples=EXAMPLES or 12, deadline=None, phases=[Phase.generate], derandomize=not EXAMPLES, database=None)
@given(st.lists(st.integers(0, len(STEPS) - 1), min_size=1, max_size=6), st.permutations([0, 1, *range(2, 10)]))
def test_random_programs(chosen: list[int], order: list[int]) -> None:
    """At ten sizes, 0 and 1 among them, in any order: right at each, and compiled at most twice."""
    torchdynamo.reset()
    backend = Counting()

    def program(x: Any, y: Any, k: int) -> Any:
        made = [x.shape[0] * 2 + k]
        for step in chosen:
            x, y = STEPS[step](x, y, k), x
            made.append(x.shape[0] - k)
        return x, y, made

    compiled = torchdynamo.compile(program, backend=backend, fullgraph=True)
    for size in order:
        args = torch.randn(size, 3), torch.randn(size, 3), 2
        assert_alike(compiled(*args), program(*args))
    assert len(backend.graphs) <= 2


# -- caches of functions -----------------------------------------------------------------------------------------------
asked: list[int] = []


@functools.lru_cache
def halves(n: int) -> Any:
    return [n // 2, n * 2], {"n": n}, (n,)


@functools.lru_cache
def noted(n: int) -> int:
    asked.append(n)
    return n + 1


def reads_what_is_cached(x: Any) -> Any:
    some, named, whole = halves(x.shape[0])
    return x * some[0] + named["n"], some[1], whole


def hands_it_out(x: Any) -> Any:
    return x + 1, halves(x.shape[0])[0]


def changes_it(x: Any) -> Any:
    halves(x.shape[0])[0].append(1)
    return x + len(halves(x.shape[0])[0])


def leaves_a_trace(x: Any) -> Any:
    return x + noted(x.shape[0])


@pytest.mark.parametrize(
    ("fn", "compiles"), [(reads_what_is_cached, 2), (hands_it_out, 5), (changes_it, 7), (leaves_a_trace, 5)]
)
def test_caches_that_are_asked_about_sizes(fn: Any, compiles: int) -> None:
    """What nobody can tell from the cache's own answer is computed of any size; else the cache gives it."""
    runs = []
    for run in (fn, None):
        torchdynamo.reset()
        halves.cache_clear()
        noted.cache_clear()
        asked.clear()
        backend = Counting()
        work = run or torchdynamo.compile(fn, backend=backend, fullgraph=True)
        results = [work(torch.ones(size, 2)) for size in (5, 7, 1, 0, 9, 5, 7)]
        same = [result[1] is halves(len(result[0]))[0] for result in results] if fn is hands_it_out else []
        runs.append((results, list(asked), same))
    (expected, traces, shared), (got, also, too) = runs
    assert_alike(got, expected)
    assert traces == also and shared == too
    assert len(backend.graphs) == compiles


# -- sizes that an operator does not take ------------------------------------------------------------------------------
CALLS = [0]
LIMIT = torch.tensor(3)


def counted() -> bool:
    CALLS[0] += 1
    return True


def test_a_column_that_lies_as_a_row_would() -> None:
    """What `nonzero` gives is one column whose other stride is its length."""
    backend = Counting()
    compiled = torchdynamo.compile(lambda column: column * 2, backend=backend)
    for size in SIZES:
        column = torch.ones(size).nonzero()
        assert torch.equal(compiled(column), column * 2)
    assert len(backend.graphs) <= 3


def test_what_is_called_ahead_is_called_as_often_as_eager_calls_it() -> None:
    def fn(x: Any) -> Any:
        if x.shape[0] == 1 and not counted():
            return x * 2
        return x + 1

    torchdynamo.reset()
    compiled = torchdynamo.compile(fn, backend="eager")
    for size in (5, 7, 1, 0, 1):
        x, before = torch.randn(size, 3), CALLS[0]
        expected, calls = fn(x), CALLS[0] - before
        assert_alike(compiled(x), expected)
        assert CALLS[0] - before == 2 * calls


def test_whole_graphs_for_some_sizes_are_better_than_pieces_for_all() -> None:
    """A number that a tensor without a value is compared with: as constants they are known."""

    def fn(x: Any) -> Any:
        return x + 1 if (x.shape[0] - LIMIT) // 2 > 1 else x * 2

    torchdynamo.reset()
    backend = Counting()
    compiled, counts = torchdynamo.compile(fn, backend=backend), []
    for size in (5, 7, 1, 9, 4, 12, 13, 14):
        x = torch.randn(size, 3)
        assert_alike(compiled(x), fn(x))
        counts.append(len(backend.graphs))
    assert counts[:3] == [1, 2, 3]
    assert counts[-1] == counts[-2]  # then what comes before and after the branch, for all sizes


def test_statistics_of_a_norm_that_does_not_train_are_not_written_to() -> None:
    norm = torch.nn.BatchNorm1d(3).eval()

    def fn(x: Any) -> Any:
        x = norm(x)
        return x + 1 if LIMIT > 2 else x  # which is read from what nobody writes to

    torchdynamo.reset()
    backend = Counting()
    compiled = torchdynamo.compile(fn, backend=backend)
    for size in SIZES:
        x = torch.randn(size, 3)
        assert_alike(compiled(x), fn(x))
    assert len(backend.graphs) == 2


@pytest.mark.parametrize("order", [(0, 5, 7, 1, 9), (5, 0, 7, 1, 9), (5, 7, 0, 1, 9)])
def test_a_size_that_raises_is_left_to_itself(order: tuple[int, ...]) -> None:
    """Other sizes are compiled as if it had not been."""
    backend = Counting()
    compiled = torchdynamo.compile(lambda x: x.amax(0), backend=backend)
    for size in order:
        x = torch.randn(size, 3)
        if size:
            assert torch.equal(compiled(x), x.amax(0))
        else:
            with pytest.raises(IndexError):
                compiled(x)
    assert len(backend.graphs) == (1 if order[0] == 0 else 2)
    assert backend.graphs[-1].graph.find_nodes(op="call_method", target="amax")


def test_where_rules_of_operators_know_too_little_the_size_at_hand_decides() -> None:
    def scaled(x: Any) -> Any:
        return x / (x[-1:] + 1)

    torchdynamo.reset()
    backend = Counting()
    compiled = torchdynamo.compile(scaled, backend=backend, fullgraph=True)
    for size in (5, 7, 9, 1, 2, 16):
        x = torch.randn(size, 3)
        assert torch.equal(compiled(x), scaled(x))
    assert len(backend.graphs) == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("layer", [torch.nn.GRU, torch.nn.LSTM, torch.nn.RNN])
@pytest.mark.parametrize("batch_first", [False, True])
def test_sequences_of_any_length(layer: Any, batch_first: bool, backend: str) -> None:
    module = layer(3, 4, batch_first=batch_first, bidirectional=True)

    def trained(x: Any) -> Any:
        out, last = module(x)
        return out * 2, out.stride(), out.shape, last

    compiled = torchdynamo.compile(trained, backend=backend, fullgraph=True)
    captures = []
    for size in (5, 7, 9, 2, 6):
        x = torch.randn(size, size, 3)[:2].transpose(0, 0 if batch_first else 1)
        results = []
        for fn in (trained, compiled):
            module.zero_grad()
            result = fn(x)
            result[0].sum().backward()
            results.append((*result, [p.grad.clone() for p in module.parameters()]))
        torch.testing.assert_close(results[1], results[0], rtol=0, atol=0 if backend == "eager" else 1e-6)
        captures.append(len(_native.cache_entries(trained.__code__)))
    assert captures[-1] == 2


def test_what_holds_in_general_is_presumed_where_the_size_at_hand_decides_something_else() -> None:
    """As much of the bias as there are columns, and of its only row: that the row is one decides, no size has to."""

    def biased(x: Any, bias: Any) -> Any:
        n = x.shape[-1]
        return x + bias[:, max(0, bias.size(1) - n) :, max(0, bias.size(2) - n) :]

    torchdynamo.reset()
    backend = Counting()
    compiled, bias = torchdynamo.compile(biased, backend=backend, fullgraph=True), torch.randn(4, 1, 64)
    for size in (8, 11, 1, 9, 64):
        x = torch.randn(2, 4, size, size)
        assert torch.equal(compiled(x, bias), biased(x, bias))
    assert len(backend.graphs) == 2


def test_facts_that_are_forgotten_are_found_out_again() -> None:
    """Of a try that is given up, torch remembers no answers either: those would make no guard the second time."""
    numbers = Numbers(False, False)
    number = numbers.at_entry(11, Source("local", None, "n"))
    for condition in (number == torch.sym_min(number, 64), number * 2 > 7):
        known = Snapshot(numbers.env)
        for _ in range(2):
            assert bool(condition)
            assert len(numbers.env.guards) == len(known.held["guards"]) + 1
            known.again()
        assert bool(condition)


# -- operators that read numbers from tensors -------------------------------------------------------------------------
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, at: torch.tensor_split(x, at),
        lambda x, at: x.tensor_split(at, dim=0)[1] * 2,
        lambda x, at: torch.nn.functional.one_hot(at[: x.shape[0]]) * 2,
    ],
)
def test_what_a_tensor_says_of_sizes(fn: Any) -> None:
    backend = Counting()
    compiled = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    for size, at in ((5, [1, 3]), (7, [2, 9]), (9, [0, 0]), (2, [1, 1])):
        x, index = torch.randn(size, 3), torch.tensor(at)
        assert_alike(compiled(x, index), fn(x, index))
    assert len(backend.graphs) <= 2


def test_classes_below_zero_are_an_error() -> None:
    compiled = torchdynamo.compile(torch.nn.functional.one_hot, backend="eager", fullgraph=True)
    wrapped = torchdynamo.compile(lambda x: torch.nn.functional.one_hot(x) + 1, backend="eager", fullgraph=True)
    assert torch.equal(wrapped(torch.tensor([2, 0])), compiled(torch.tensor([2, 0])) + 1)
    for bad in ([-1, 4], [-3], []):
        with pytest.raises(RuntimeError):
            wrapped(torch.tensor(bad, dtype=torch.long))


def test_strides_beside_one_element_are_what_they_are() -> None:
    """There they may be any, and no size says which."""

    def strides(x):
        return x.stride(), x.stride(-2), x + 1

    compiled = torchdynamo.compile(strides, backend="eager", dynamic=True)
    for x in (torch.ones(3, 1).t(), torch.ones(1, 3), torch.ones(3, 2).t(), torch.ones(2, 3), torch.ones(4, 1).t()):
        assert compiled(x)[:2] == strides(x)[:2]

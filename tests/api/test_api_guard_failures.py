"""Being told, or stopped, when a function is compiled once more, and when a backend gives something else."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from counting import Counting

import torchdynamo
from torchdynamo.errors import FallbackWarning
from torchdynamo.exc import FailOnRecompileLimitHit, RecompileError, VerificationError
from torchdynamo.report.guard_failures import GuardFail


def scaled(x: Any, k: Any) -> Any:
    return x * 2 if k == 3 else x * 3


CHANGES: dict[str, tuple[tuple[Any, Any], tuple[Any, Any], str]] = {
    "a number": ((torch.ones(3), 3), (torch.ones(3), 4), "k"),
    "a dtype": ((torch.ones(3), 3), (torch.ones(3).double(), 3), "x.dtype"),
    "a size": ((torch.ones(3), 3), (torch.ones(4), 3), "x.size"),
    "a stride": ((torch.ones(3, 3), 3), (torch.ones(3, 3).t()[:, :2].t(), 3), "x"),
    "a class": ((torch.ones(3), 3), (torch.nn.Parameter(torch.ones(3)), 3), "x"),
    "a type": ((torch.ones(3), 3), (torch.ones(3), None), "k"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changed_is_told_or_raised(name: str) -> None:
    first, second, what = CHANGES[name]
    told: list[GuardFail] = []
    backend = Counting()
    compiled = torchdynamo.optimize(backend, guard_fail_fn=told.append)(scaled)
    compiled(*first)
    compiled(*first)
    assert not told
    with torchdynamo.config.patch(error_on_recompile=True), pytest.raises(RecompileError, match="would be compiled"):
        compiled(*second)
    assert len(backend.graphs) == 1
    compiled(*first)
    assert torch.equal(compiled(*second), scaled(*second))
    assert len(backend.graphs) == 2
    assert len(told) == 2
    assert told[0] == told[1]
    assert told[0].orig_code is scaled.__code__
    assert told[0].reason.startswith(what) or f" {what}" in told[0].reason


def test_each_version_is_told_of_the_newest_first() -> None:
    told: list[str] = []

    def doubled(x: Any) -> Any:
        return x * 2

    compiled = torchdynamo.optimize("eager", guard_fail_fn=lambda failure: told.append(failure.reason))(doubled)
    for dtype in (torch.float32, torch.float64, torch.int32):
        told.clear()
        compiled(torch.ones(2, dtype=dtype))
    assert len(told) == 2
    assert "float64" in told[0]
    assert "float32" in told[1]


def test_a_first_call_and_a_break_are_no_recompiles() -> None:
    def broken(x: Any) -> Any:
        y = x * 2
        torchdynamo.graph_break()
        return y + 1

    with torchdynamo.config.patch(error_on_recompile=True):
        compiled = torchdynamo.compile(broken, backend="eager")
        assert torch.equal(compiled(torch.ones(2)), compiled(torch.ones(2)))


@pytest.mark.parametrize("fullgraph", [False, True])
def test_the_limit_may_be_an_error(fullgraph: bool) -> None:
    compiled = torchdynamo.compile(scaled, backend="eager", dynamic=False, fullgraph=fullgraph)
    with torchdynamo.config.patch(cache_size_limit=2, fail_on_recompile_limit_hit=True):
        for k in (3, 4):
            compiled(torch.ones(3), k)
        for _ in range(2):
            with pytest.raises(FailOnRecompileLimitHit, match="limit of 2 versions"):
                compiled(torch.ones(3), 5)
        assert torch.equal(compiled(torch.ones(3), 3), torch.ones(3) * 2)


# -- verify_correctness ------------------------------------------------------------------------------------------------
def right(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
    return gm.forward


def adds_for_multiplies(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
    for node in gm.graph.find_nodes(op="call_function", target=operator.mul):
        node.target = operator.add
    gm.recompile()
    return gm.forward


def writes_nothing(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
    return lambda *args: gm.forward(*(each.clone() for each in args))


def product(x: Any) -> Any:
    return x * 5


def written(x: Any) -> Any:
    x.add_(1)
    return x * 5


def drawn(x: Any) -> Any:
    return x * torch.rand(3)


@pytest.mark.parametrize(
    ("fn", "backend"), [(product, adds_for_multiplies), (written, adds_for_multiplies), (written, writes_nothing)]
)
@pytest.mark.parametrize("fullgraph", [False, True])
def test_other_results_are_errors(fn: Callable[..., Any], backend: Any, fullgraph: bool) -> None:
    x = torch.ones(3)
    with torchdynamo.config.patch(verify_correctness=True), pytest.raises(VerificationError, match="incorrect results"):
        torchdynamo.compile(fn, backend=backend, fullgraph=fullgraph)(x)
    assert x.tolist() == [1, 1, 1]


def wrong_later(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
    """Compute another result from the third run on; the first is that of the check when it is compiled."""
    runs = 0

    def run(*args: Any) -> Any:
        nonlocal runs
        runs += 1
        return gm.forward(*args) if runs < 3 else tuple(each + 1 for each in gm.forward(*args))

    return run


@pytest.mark.parametrize("fn", [product, written])
def test_every_nth_call_is_held_against_eager(fn: Callable[..., Any]) -> None:
    with torchdynamo.config.patch(verify_correctness=3):
        compiled = torchdynamo.compile(fn, backend=wrong_later)
        assert [compiled(torch.ones(1)).item() == fn(torch.ones(1)).item() for _ in range(2)] == [True, False]
        with pytest.warns(FallbackWarning, match="call 3: incorrect results of backend 'wrong_later'"):
            assert compiled(torch.ones(1)).item() == fn(torch.ones(1)).item()
        with torchdynamo.config.patch(suppress_errors=False):
            x = torch.ones(1)
            compiled(x * 1), compiled(x * 1)
            with pytest.raises(VerificationError, match="incorrect results"):
                compiled(x)
            assert x.item() == 1


@pytest.mark.parametrize("value", [0, -1, 1.5, "yes", None])
def test_verify_correctness_takes_truth_values_and_counts(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="verify_correctness"):
        torchdynamo.config.verify_correctness = value


@pytest.mark.parametrize("fn", [product, written, drawn])
@pytest.mark.parametrize("backend", [right, "eager", "aot_eager"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_the_same_results_leave_no_trace(fn: Callable[..., Any], backend: Any, requires_grad: bool) -> None:
    with torchdynamo.config.patch(verify_correctness=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = torchdynamo.compile(fn, backend=backend, dynamic=True)
        for _ in range(2):
            found = []
            for run in (fn, compiled):
                torch.manual_seed(0)
                x = torch.arange(3.0).requires_grad_(requires_grad)
                found.append((run(x * 1), torch.rand(1), x))
            assert all(map(torch.equal, *found))

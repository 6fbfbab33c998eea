"""Branches whose one side only raises do not end a graph: where they would raise, the frame runs as it was written."""

from __future__ import annotations

import contextlib
import copy
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributions as dist
from pictures import assert_alike

import torchdynamo
from torchdynamo.errors import FallbackWarning

X = torch.arange(1.0, 7.0).reshape(2, 3)
NAN = X * float("nan")


class Row(NamedTuple):
    """A function, arguments with which it returns, arguments with which it raises."""

    fn: Callable[..., Any]
    good: tuple[Any, ...]
    bad: tuple[Any, ...]


ROWS: list[Row] = []


def row(good: tuple[Any, ...], bad: tuple[Any, ...]) -> Any:
    def register(fn: Any) -> Any:
        ROWS.append(Row(fn, good, bad))
        return fn

    return register


@row((X,), (-X,))
def raises(x: Any) -> Any:
    y = x * 2
    if (x < 0).any():
        raise ValueError(f"the least is {x.min().item()}")
    return y + 1


@row((X, 1), (X, float("nan")))
def with_all_kinds_of_arguments(x: Any, k: Any, /, *more: Any, plus: int = 3, **named: Any) -> Any:
    if not torch.isfinite(x * k).all():
        raise ArithmeticError(k, plus, more, named)
    return x * k + plus


@row((X, []), (-X, []))
def with_effects(x: Any, log: list[Any]) -> Any:
    log.append(x + 1)
    if not (x > 0).all():
        raise ValueError(len(log))
    log.append("checked")
    return x.log()


@row((X, torch.tensor([0, 2])), (X, torch.tensor([0, 9])))
def an_index(table: Any, at: Any) -> Any:
    if (at >= table.shape[1]).any():
        raise IndexError("out of the table")
    return table[:, at] * 2


@row((X,), (NAN,))
def deep_inside(x: Any) -> Any:
    def check(y: Any) -> None:
        for name, value in {"a": y, "b": y + 1}.items():
            if torch.isnan(value).any():
                raise RuntimeError(name)

    with torch.no_grad():
        check(x)
    return x + 1


@row((X,), (NAN,))
def either(x: Any) -> Any:
    if (x < 0).any() or torch.isnan(x).any():
        raise ValueError
    return x + 1


@row((X, 2 * X), (X, NAN))
def all_or_any_of_several(x: Any, y: Any) -> Any:
    if not all((each > 0).all() for each in (x, y)):
        raise ValueError("positive")
    if any([torch.isinf(x).any(), torch.isinf(y).any()]):
        raise ValueError("infinite")
    return x + y


@row((X,), (NAN,))
def random_numbers(x: Any) -> Any:
    noise = torch.rand(3)
    if torch.isnan(x).any():
        raise ValueError(noise)
    return x + noise + torch.rand(3)


@row((X,), (NAN,))
def normal(x: Any) -> Any:
    made = dist.Normal(x, x.abs() + 1)
    return made.log_prob(x), made.rsample(), made.entropy()


@row((X, torch.tensor([0, 1])), (X, torch.tensor([0, 7])))
def categorical(logits: Any, actions: Any) -> Any:
    made = dist.Categorical(logits=logits)
    return made.sample(), made.log_prob(actions), made.entropy()


@row((torch.eye(2),), (-torch.eye(2),))
def multivariate(x: Any) -> Any:
    return dist.MultivariateNormal(torch.zeros(2), x).log_prob(torch.ones(2))


@row((X[0],), (-X[0],))
def several(x: Any) -> Any:
    return (
        dist.Gamma(x, x).log_prob(x),
        dist.Beta(x, x).entropy(),
        dist.Dirichlet(x).log_prob(x / x.sum()),
        dist.Independent(dist.Normal(x, x), 1).log_prob(x),
        dist.TransformedDistribution(dist.Normal(x, x), dist.SigmoidTransform()).log_prob(torch.sigmoid(x)),
        dist.kl_divergence(dist.Normal(x, x), dist.Normal(0.0, 1.0)),
    )


def outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """What it returns or raises, what it leaves in its arguments, and the next random number."""
    torch.manual_seed(0)
    args = copy.deepcopy(args)
    try:
        result = fn(*args)
    except Exception as error:
        result = type(error), [str(arg) for arg in error.args]
    return result, args, torch.rand(1)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("case", ROWS, ids=lambda case: case.fn.__name__)
def test_one_graph_and_what_is_raised(case: Row, backend: str) -> None:
    if case.fn is all_or_any_of_several and sys.version_info >= (3, 14):
        pytest.skip("this version makes a loop with a branch of all() (docs/limits.md)")
    compiled = torchdynamo.compile(case.fn, backend=backend, fullgraph=True)
    for args in (case.good, case.bad, case.good, case.bad):
        assert_alike(outcome(case.fn, args), outcome(compiled, args))
    assert isinstance(outcome(case.fn, case.bad)[0][0], type), "the row's bad arguments are good"


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("case", ROWS, ids=lambda case: case.fn.__name__)
def test_a_first_call_that_raises(case: Row, backend: str) -> None:
    compiled = torchdynamo.compile(case.fn, backend=backend)
    for args in (case.bad, case.good):
        assert_alike(outcome(case.fn, args), outcome(compiled, args))


def test_gradients() -> None:
    compiled = torchdynamo.compile(normal, backend="aot_eager", fullgraph=True)
    grads = []
    for fn in (normal, compiled):
        x = X.clone().requires_grad_()
        fn(x)[0].sum().backward()
        grads.append(x.grad)
    assert torch.equal(*grads)  # type: ignore[arg-type]


def test_the_graph_stops_to_look_before_an_index_is_used() -> None:
    parts: list[list[str]] = []

    def backend(gm: Any, inputs: Any) -> Any:
        parts.append([str(node.target) for node in gm.graph.nodes if node.op.startswith("call_")])
        return gm.forward

    compiled = torchdynamo.compile(an_index, backend=backend, fullgraph=True)
    with pytest.raises(IndexError, match="out of the table"):
        compiled(X, torch.tensor([9, 9]))
    assert [len(part) for part in parts] == [2]
    compiled(X, torch.tensor([1, 1]))
    assert [len(part) for part in parts] == [2, 2]


def counted(x: Any, seen: Any) -> Any:
    seen.add_(1)
    if (x < 0).any():
        raise ValueError("negative")
    return x + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("part", [slice(None), slice(1, None, 2)], ids=["whole", "view"])
def test_what_was_written_over_is_put_back(backend: str, part: slice) -> None:
    """The frame runs from its start, and finds what it found: contents, and how often they were written to."""
    compiled = torchdynamo.compile(counted, backend=backend, fullgraph=True)
    state, eagers = torch.zeros(4), torch.zeros(4)
    for x in (X, -X, X):
        for fn, seen in ((compiled, state), (counted, eagers)):
            with contextlib.suppress(ValueError):
                fn(x, seen[part])
    assert torch.equal(state, eagers)
    assert state._version == eagers._version == 3


def updated(x: Any, seen: Any) -> Any:
    seen.mul_(x)
    if (x < 0).any():
        raise ValueError("negative")
    return x + 1


def turned(x: Any, seen: Any) -> Any:
    seen.add_(1).t_()
    if (x < 0).any():
        raise ValueError("negative")
    return x + 1


@pytest.mark.parametrize(
    ("fn", "seen", "wants_gradients"),
    [(updated, torch.ones(3), True), (turned, torch.ones(2, 2), False), (counted, torch.zeros(1 << 19), False)],
    ids=["history", "layout", "much"],
)
def test_not_after_a_write_that_cannot_be_taken_back(fn: Any, seen: Any, wants_gradients: bool) -> None:
    x = torch.arange(3.0, requires_grad=wants_gradients)
    compiled, mine, eagers = torchdynamo.compile(fn, backend="eager"), seen.clone(), seen.clone()
    assert torch.equal(compiled(x, mine), fn(x, eagers))
    assert [each.reason for each in torchdynamo.explain(fn)(x, seen.clone()).breaks] == ["data-dependent branch"]
    with pytest.raises(ValueError, match="negative"):
        compiled(x - 1, mine)
    with pytest.raises(ValueError, match="negative"):
        fn(x - 1, eagers)
    assert torch.equal(mine, eagers) and mine.shape == eagers.shape


def caught_inside(x: Any) -> Any:
    try:
        if x.sum() < 0:
            raise ValueError
        return x + 1
    except ValueError:
        return x - 1


def test_what_the_program_catches_is_a_branch_like_any_other() -> None:
    report = torchdynamo.explain(caught_inside)(X)
    assert [each.reason for each in report.breaks] == ["data-dependent branch"]


def test_a_branch_that_goes_both_ways_after_all() -> None:
    """What a hook round the raising call swallows cannot be seen in the code."""

    def swallowing(x: Any) -> Any:
        class Swallow:
            def __enter__(self) -> None: ...

            def __exit__(self, *error: Any) -> bool:
                return True

        with Swallow():
            if (x < 0).any():
                raise ValueError
            return x + 1
        return x - 1

    compiled = torchdynamo.compile(swallowing, backend="eager")
    for x in (X, -X, X, -X, -X):
        assert_alike(swallowing(x), compiled(x))


def test_a_backend_that_fails_is_told_apart_from_the_program() -> None:
    def backend(gm: Any, inputs: Any) -> Any:
        def fail(*args: Any) -> Any:
            raise KeyError("the backend's own")

        return fail

    compiled = torchdynamo.compile(raises, backend=backend)
    with pytest.warns(FallbackWarning, match="the backend's own"):
        assert torch.equal(compiled(X), raises(X))
    with warnings.catch_warnings(), pytest.raises(ValueError, match="the least is -6"):
        warnings.simplefilter("error")
        compiled(-X)

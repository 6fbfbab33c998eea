"""Branches and loops on tensors' values, captured on request as one operator with all ways in it."""
# ruff: noqa: SIM108

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.bytecode import versions
from torchdynamo.errors import Unsupported

A = torch.arange(6.0).reshape(2, 3) / 3
B = 0.3 - A


@pytest.fixture(autouse=True)
def on_request() -> Iterator[None]:
    with torchdynamo.config.patch(capture_branches=True):
        yield


def one_side(a: Any, b: Any) -> Any:
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def both_return(a: Any, b: Any) -> Any:
    if a.sum() > 0:
        return a + 1, b * 2
    return a - 1, b * 3


def nested(a: Any, b: Any) -> Any:
    if a.sum() > 0:
        c = a * 2
        if b.sum() > 0:
            c = c + 1
        d = c.sin()
    else:
        d = a.cos()
        c = d * 2
    if d.mean() > 0.5:
        e = d
    else:
        e = c
    return e + b


def in_a_call(a: Any, b: Any) -> Any:
    def scaled(x: Any) -> Any:
        if x.max() > 1:
            return x / x.max()
        return x * 1.0

    return scaled(a) + scaled(b)


def on_the_stack(a: Any, b: Any) -> Any:
    return (a if a.sum() > 0 else b) * 2


def chained(a: Any, b: Any) -> Any:
    if a.sum() > 0 and b.sum() > 0:
        return a * 2
    elif a.sum() > 0 or b.sum() > 0:
        return b * 3
    return a + b


def by_a_number(a: Any, b: Any) -> Any:
    if a[0, 1]:  # no bool
        c = a * 2
    else:
        c = b * 2
    return c + 1


def in_turns(a: Any, b: Any) -> Any:
    for _ in range(3):
        if a.sum() < 4:
            a = a * 1.5 + b
        else:
            a = a - 1
    return a * 1


def in_a_with(a: Any, b: Any) -> Any:
    with torch.no_grad():
        if a.sum() > 0:
            c = a * 2
        else:
            c = a * 3
    return c + b


def repeated(a: Any, b: Any) -> Any:
    x, err = a * 1.0, b.abs().sum() + 1
    while err > 0.1:
        x = x * 0.5 + b
        err = err * 0.5
    return x, err


def newton(a: Any, b: Any) -> Any:
    x, turns = torch.ones(3), torch.zeros((), dtype=torch.int64)
    while (x * x - b[0].abs() - 1).abs().max() > 1e-4:
        x = x - (x * x - b[0].abs() - 1) / (2 * x)
        turns = turns + 1
    return x * turns


def branch_in_a_loop(a: Any, b: Any) -> Any:
    x = a * 2
    while x.sum() > 1:
        x = x / 2
        if x.max() < 2:
            x = x + 1e-3
    y = x * 2
    return y - 1


def loops_in_loops(a: Any, b: Any) -> Any:
    for _ in range(2):
        while a.abs().sum() > 1:
            while b.abs().sum() > 2:
                b = b / 3
            a = a / 2 + b * 0.01
        a = a * 3
    return a * 1, b * 1


BRANCHES = [one_side, both_return, nested, in_a_call, on_the_stack, chained, by_a_number, in_turns, in_a_with]
LOOPS = [repeated, newton, branch_in_a_loop, loops_in_loops]


def results(fn: Callable[..., Any], *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
    found = fn(*(each.clone() for each in args))
    return found if isinstance(found, tuple) else (found,)


def pairs() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    return ((a, b) for a in (A, -A, A * 9) for b in (B, -B, B * 9))


@pytest.mark.parametrize(
    ("fn", "backend"), [(fn, "eager") for fn in BRANCHES + LOOPS] + [(fn, "aot_eager") for fn in (nested, *LOOPS)]
)
def test_one_graph_for_all_ways(fn: Any, backend: str) -> None:
    graphs: list[Any] = []

    def counting(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return torchdynamo.optimizations.BACKENDS[backend](gm, inputs)

    if fn is in_a_with and not versions.EXCEPTION_TABLE:
        pytest.skip("each way leaves the block by itself there: Python has it twice in the code")
    compiled = torchdynamo.compile(fn, backend=counting, fullgraph=True)
    for a, b in pairs():
        assert all(map(torch.equal, results(fn, a, b), results(compiled, a, b)))
    assert len(graphs) == 1


@pytest.mark.parametrize("fn", [one_side, both_return, nested, chained, in_turns])
def test_gradients(fn: Any) -> None:
    compiled = torchdynamo.compile(fn, backend="aot_eager", fullgraph=True)
    for pair in pairs():
        grads = []
        for each in (fn, compiled):
            a, b = (x.clone().requires_grad_() for x in pair)
            found = each(a, b)
            sum(x.sin().sum() for x in (found if isinstance(found, tuple) else (found,))).backward()
            grads.append([a.grad if a.grad is not None else A * 0, b.grad if b.grad is not None else A * 0])
        assert all(map(torch.equal, *grads))


def returned_as_given(a: Any, b: Any) -> Any:
    if b.sum() < 0:
        b = b * -1
    return b


def returned_beside(a: Any, b: Any) -> Any:
    c = d = a + b
    if b.sum() < 0:
        d = d * -1
    return c, d


def no_turn(a: Any, b: Any) -> Any:
    while a.sum() > 100:
        a = a / 2
    return a


def written_to(a: Any, b: Any) -> Any:
    a = a + 0
    c = a
    if b.sum() < 0:
        c = b * -1
    a.add_(1)
    return c * 2


def compared(a: Any, b: Any) -> Any:
    c = a if b.sum() < 0 else b
    return c * 2 if c is a else c * 3


def other_metadata(a: Any, b: Any) -> Any:
    if a.sum() > 0:
        return a.sum()
    return b * 1


def appended(a: Any, b: Any) -> Any:
    found = []
    if a.sum() > 0:
        found.append(a)
    else:
        found.append(b)
    return found[0] * 2


def raised(a: Any, b: Any) -> Any:
    try:
        if a.sum() > 0:
            a = a.reshape(5)
        else:
            a = a * 2
    except RuntimeError:
        return b
    return a


def unset(a: Any, b: Any) -> Any:
    if a.sum() > 0:
        c = a * 2
    return c + 1


def counted(a: Any, b: Any) -> Any:
    turns = 0
    while a.sum() > 1:
        a = a / 2
        turns += 1
    return a * turns


def two_tests(a: Any, b: Any) -> Any:
    while a.sum() > 1 and b.sum() > -9:
        a, b = a / 2, b - 1
    return a * b


REFUSED = [returned_as_given, returned_beside, no_turn, written_to, compared, other_metadata, appended, raised]
REFUSED += [counted, two_tests]


@pytest.mark.parametrize("fn", REFUSED)
def test_others_end_the_graph(fn: Any) -> None:
    """Sharing of memory is looked at too: a copy would not do where eager returns what it was given."""
    with pytest.raises(Unsupported):
        torchdynamo.compile(fn, backend="eager", fullgraph=True)(A, B)
    torchdynamo.reset()
    compiled = torchdynamo.compile(fn, backend="eager")
    for a, b in pairs():
        assert all(map(torch.equal, results(fn, a, b), results(compiled, a, b)))
        assert (compiled(a, b) is b) == (fn(a, b) is b) and (compiled(a, b) is a) == (fn(a, b) is a)


def test_a_variable_that_one_way_leaves_unset() -> None:
    compiled = torchdynamo.compile(unset, backend="eager")
    assert torch.equal(compiled(A, B), unset(A, B))
    with pytest.raises(UnboundLocalError):
        compiled(-A, B)


def test_nothing_is_captured_without_being_asked_for() -> None:
    with torchdynamo.config.patch(capture_branches=False), pytest.raises(Unsupported, match="capture_branches"):
        torchdynamo.compile(one_side, backend="eager", fullgraph=True)(A, B)


def one_or_other(a: Any) -> Any:
    if a.sum() > 0:
        return a * 2
    return a


def as_key(a: Any) -> Any:
    a = a * 1
    return {a: 1}.get(one_or_other(a), 0) + len({a, one_or_other(a)}) + [id(a)].count(id(one_or_other(a)))


def attribute_set(a: Any) -> Any:
    a = a * 1
    a.mark = 1
    return hasattr(one_or_other(a), "mark")


def attribute_set_after(a: Any) -> Any:
    a = a * 1
    b = one_or_other(a)
    a.mark = 1
    return hasattr(b, "mark")


def with_an_offset(a: Any) -> Any:
    return one_or_other((a * 1)[1:]).storage_offset()


def history(a: Any) -> Any:
    return type(one_or_other(a * 1).grad_fn).__name__


def gradient(a: Any) -> Any:
    a = a * 1
    b = one_or_other(a)
    return torch.autograd.grad((a * a).sum(), b, allow_unused=True)[0] is None


def hooked(a: Any) -> Any:
    b = a * 1
    one_or_other(b).register_hook(lambda grad: grad * 10)
    (b * 1).sum().backward()
    return a.grad.tolist()


NOTICED = [as_key, attribute_set, attribute_set_after, with_an_offset, history, gradient, hooked]


@pytest.mark.parametrize("fn", NOTICED)
def test_nothing_tells_a_copy_from_what_it_stands_for(fn: Any) -> None:
    for sign in (1, -1):
        torchdynamo.reset()
        compiled = torchdynamo.compile(fn, backend="eager")
        for each in (A * sign, A * -sign):
            wanted, got = (run(each.clone().requires_grad_()) for run in (fn, compiled))
            assert got == wanted

"""Sizes that are marked as dynamic, and functions that take them for less: an error that names the line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from counting import Counting

import torchdynamo
from torchdynamo.exc import ConstraintViolationError

Fn = Callable[[Any], Any]


def compared(x: Any) -> Any:
    return x * 2 if x.shape[0] == 5 else x


def counted(x: Any) -> Any:
    for i in range(x.shape[0]):
        x = x + i
    return x


def with_a_constant(x: Any) -> Any:
    return x + torch.ones(5, 2)


def bounded(x: Any) -> Any:
    return x * 2 if x.shape[0] > 3 else x


def any_size(x: Any) -> Any:
    return x * 2


def square(x: Any) -> Any:
    return x @ x.t() @ x


def marked(size: int, mark: Callable[..., None], **bounds: int) -> Any:
    x = torch.ones(size, 2)
    mark(x, 0, **bounds)
    return x


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("fn", [compared, counted, with_a_constant], ids=lambda fn: fn.__name__)
def test_a_constant_is_an_error_that_names_the_line(fn: Fn, fullgraph: bool) -> None:
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=fullgraph)
    with pytest.raises(ConstraintViolationError, match=r"x.size\(0\) has been marked as dynamic") as raised:
        compiled(marked(5, torchdynamo.mark_dynamic))
    assert f"{__file__}:{fn.__code__.co_firstlineno}"[:-2] in str(raised.value)
    with pytest.raises(ConstraintViolationError):
        compiled(marked(5, torchdynamo.mark_dynamic))
    assert torch.equal(compiled(torch.ones(5, 2)), fn(torch.ones(5, 2)))


def test_perhaps_is_no_promise() -> None:
    for fn in (compared, counted, with_a_constant, any_size):
        compiled = torchdynamo.compile(fn, backend="eager")
        assert torch.equal(compiled(marked(5, torchdynamo.maybe_mark_dynamic)), fn(torch.ones(5, 2)))


@pytest.mark.parametrize("size", [0, 1])
def test_small_sizes_may_be_special(size: int) -> None:

    def fn(x: Any) -> Any:
        return x * 2 if x.shape[0] == size else x

    compiled = torchdynamo.compile(fn, backend="eager")
    assert torch.equal(compiled(marked(size, torchdynamo.mark_dynamic)), torch.ones(size, 2) * 2)


@pytest.mark.parametrize("fn", [bounded, any_size, square], ids=lambda fn: fn.__name__)
def test_what_stays_open_is_compiled_once(fn: Fn) -> None:
    backend = Counting()
    compiled = torchdynamo.compile(fn, backend=backend)
    for size in (5, 6, 4):
        assert torch.equal(compiled(marked(size, torchdynamo.mark_dynamic)), fn(torch.ones(size, 2)))
    assert len(backend.graphs) == 1


@pytest.mark.parametrize(("low", "high", "holds"), [(4, 8, True), (4, 20, True), (2, 8, False), (3, 8, False)])
def test_bounds_have_to_hold_as_a_whole(low: int, high: int, holds: bool) -> None:
    compiled = torchdynamo.compile(bounded, backend="eager")
    x = marked(5, torchdynamo.mark_dynamic, min=low, max=high)
    if holds:
        assert torch.equal(compiled(x), bounded(torch.ones(5, 2)))
    else:
        with pytest.raises(ConstraintViolationError, match=rf"from {low} to {high}, and the function takes 4 to 8"):
            compiled(x)


def test_bounds_serve_the_sizes_between_them() -> None:
    backend = Counting()
    compiled = torchdynamo.compile(bounded, backend=backend)
    for size in (4, 8, 5):
        x = marked(size, torchdynamo.mark_dynamic, min=4, max=8)
        assert torch.equal(compiled(x), bounded(torch.ones(size, 2)))
    assert len(backend.graphs) == 1
    assert torch.equal(compiled(torch.ones(9, 2)), bounded(torch.ones(9, 2)))

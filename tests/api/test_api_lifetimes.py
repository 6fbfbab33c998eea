"""After a break objects live as long as in eager: the frame that was left keeps none of them."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import pytest
import torch

import torchdynamo


class Thing:
    """May be referred to weakly."""


def deleted_after_a_break(x: Any, seen: list[bool]) -> Any:
    thing = Thing()
    died = weakref.ref(thing)
    y = x * 2
    gone = weakref.ref(y)
    z = y + 1
    torchdynamo.graph_break()
    del thing
    seen.append(died() is None)
    del y
    torchdynamo.graph_break()
    seen.append(gone() is None)
    return z


def replaced_after_a_break(x: Any, seen: list[bool]) -> Any:
    y = x * 2
    torchdynamo.graph_break()
    gone = weakref.ref(y)
    y = y + 1
    torchdynamo.graph_break()
    seen.append(gone() is None)
    return y


def on_the_stack_at_a_break(x: Any, seen: list[bool]) -> Any:
    y = x * 2
    gone = weakref.ref(y)
    z = [y, torchdynamo.graph_break()][0] + 1
    del y
    torchdynamo.graph_break()
    seen.append(gone() is None)
    return z


def caught_after_a_break(x: Any, seen: list[bool]) -> Any:
    y = x * 2
    gone = weakref.ref(y)
    try:
        torchdynamo.graph_break()
        raise ValueError
    except ValueError:
        z = y + 1
    del y
    torchdynamo.graph_break()
    seen.append(gone() is None)
    return z


@pytest.mark.skipif(sys.version_info < (3, 11), reason="frames of 3.10 keep their arguments")
@pytest.mark.parametrize(
    "fn", [deleted_after_a_break, replaced_after_a_break, on_the_stack_at_a_break, caught_after_a_break]
)
def test_what_is_let_go_is_gone(fn: Any) -> None:
    compiled = torchdynamo.compile(fn, backend="eager")
    for _ in range(3):
        wanted: list[bool] = []
        seen: list[bool] = []
        assert torch.equal(compiled(torch.ones(3), seen), fn(torch.ones(3), wanted))
        assert seen == wanted and seen


def depth(x: Any, n: int) -> Any:
    y = x + 1
    torchdynamo.graph_break()
    return y if n == 0 else depth(y, n - 1) + 0 * y


def test_recursion_over_breaks() -> None:
    compiled = torchdynamo.compile(depth, backend="eager")
    assert torch.equal(compiled(torch.zeros(2), 100), torch.full((2,), 101.0))

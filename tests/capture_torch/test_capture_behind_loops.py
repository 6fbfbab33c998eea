"""A loop with a break in it stays Python; what follows it is captured again, where that can be given all it needs."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from counting import Counting

import torchdynamo

X = torch.arange(3.0)
PROGRAMS: list[tuple[Callable[..., Any], int]] = []


def program(graphs: int) -> Callable[[Any], Any]:
    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append((fn, graphs))
        return fn

    return register


@program(2)
def for_loop(x, n):
    x = x * 2
    for _ in range(n):
        torchdynamo.graph_break()
        x = x + 1
    return x * 3 - 1


@program(2)
def while_loop(x, n):
    x = x * 2
    while n > 0:
        torchdynamo.graph_break()
        x, n = x + 1, n - 1
    return x * 3 - 1


@program(2)
def left_by_break(x, n):
    x = x * 2
    for i in range(n):
        torchdynamo.graph_break()
        if i > 1:
            break
        x = x + i
    return x * 3 - 1


@program(1)
def otherwise(x, n):
    """What `break` goes to is behind the `else`, and stays Python."""
    x = x * 2
    for i in range(n):
        torchdynamo.graph_break()
        if i > 1:
            break
        x = x + i
    else:
        x = x - 7
    return x * 3 - 1


@program(1)
def variable_of_the_loop(x, n):
    """It is not set where there was no turn."""
    x = x * 2
    for i in range(n):
        torchdynamo.graph_break()
        x = x + i
    return x * i


@program(2)
def returns_inside(x, n):
    x = x * 2
    for i in range(n):
        torchdynamo.graph_break()
        x = x + 1
        if i == 5:
            return x
    return x * 3 - 1


@program(2)
def one_in_another(x, n):
    x = x * 2
    for _ in range(n):
        for _ in range(2):
            torchdynamo.graph_break()
            x = x + 1
        x = x * 1
    return x * 3 - 1


@program(3)
def one_after_another(x, n):
    x = x * 2
    for _ in range(n):
        torchdynamo.graph_break()
        x = x + 1
    x = x * 3
    for _ in range(n):
        torchdynamo.graph_break()
        x = x - 1
    return x * 4


@program(2)
def shares_a_variable(x, n):
    total = 0

    def add(k):
        nonlocal total
        total += k
        return total

    x = x * 2
    for i in range(n):
        torchdynamo.graph_break()
        add(i)
    return x * add(1), total


@program(2)
def in_a_try(x, n):
    x = x * 2
    try:
        for _ in range(n):
            torchdynamo.graph_break()
            x = x + 1
        x = x * 3
        raise KeyError(n)
    except KeyError as error:
        return x - 1, error.args


@program(2)
def raises_behind(x, n):
    x = x * 2
    for _ in range(n):
        torchdynamo.graph_break()
        x = x + 1
    x = x * 3
    raise ValueError(x.shape)


def each(x):
    yield x + 1
    torchdynamo.graph_break()
    yield x * 2


@program(2)
def over_a_generator(x, n):
    x = x * n
    total = x
    for value in each(x):
        total = total + value
    return total * 2 - 1


@program(1)
def nothing_behind(x, n):
    x = x * 2
    for _ in range(n):
        torchdynamo.graph_break()
        x = x + 1
    return x


@program(2)
def deleted_inside(x, n):
    y = x * 2
    for _ in range(n):
        torchdynamo.graph_break()
        z = y + 1
        del z
    return y * 3 - 1


def outcome(fn: Callable[..., Any], n: int) -> Any:
    try:
        return str(fn(X.clone(), n))
    except (ValueError, UnboundLocalError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return type(error), str(error), last.name, last.lineno


@pytest.mark.parametrize(("fn", "graphs"), PROGRAMS, ids=lambda each: getattr(each, "__name__", ""))
def test_behind_a_loop(fn: Callable[..., Any], graphs: int) -> None:
    backend = Counting()
    compiled = torchdynamo.compile(fn, backend=backend, dynamic=False)
    assert outcome(compiled, 3) == outcome(fn, 3)
    assert len(backend.graphs) == graphs
    for n in (3, 1, 0):
        assert outcome(compiled, n) == outcome(fn, n)

"""A loop with a break in it stays Python: its body is captured each turn, and so is what follows it."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from counting import Counting

import torchdynamo
from torchdynamo.bytecode.versions import ONE_FRAME_SHOWN, OUTLINES

X = torch.arange(3.0)
PROGRAMS: list[tuple[Callable[..., Any], int]] = []


def program(graphs: int) -> Callable[[Any], Any]:
    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append((fn, graphs))
        return fn

    return register


@program(3)
def for_loop(x, n):
    x = x * 2
    for _ in range(n):
        torchdynamo.graph_break()
        x = x + 1
    return x * 3 - 1


@program(4)
def while_loop(x, n):
    x = x * 2
    while n > 0:
        torchdynamo.graph_break()
        x, n = x + 1, n - 1
    return x * 3 - 1


@program(4)
def left_by_break(x, n):
    x = x * 2
    for i in range(n):
        torchdynamo.graph_break()
        if i > 1:
            break
        x = x + i
    return x * 3 - 1


@program(4)
def otherwise(x, n):
    x = x * 2
    for i in range(n):
        torchdynamo.graph_break()
        if i > 1:
            break
        x = x + i
    else:
        x = x - 7
    return x * 3 - 1


@program(4)
def variable_of_the_loop(x, n):
    """It is not set where there was no turn."""
    x = x * 2
    for i in range(n):
        torchdynamo.graph_break()
        x = x + i
    return x * i


@program(4)
def returns_inside(x, n):
    x = x * 2
    for i in range(n):
        torchdynamo.graph_break()
        x = x + 1
        if i == 5:
            return x
    return x * 3 - 1


@program(4)
def one_in_another(x, n):
    x = x * 2
    for _ in range(n):
        for _ in range(2):
            torchdynamo.graph_break()
            x = x + 1
        x = x * 1
    return x * 3 - 1


@program(5)
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


@program(3)
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


@program(3)
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


@program(5)
def over_a_generator(x, n):
    x = x * n
    total = x
    for value in each(x):
        total = total + value
    return total * 2 - 1


@program(2)
def nothing_behind(x, n):
    x = x * 2
    for _ in range(n):
        torchdynamo.graph_break()
        x = x + 1
    return x


@program(3)
def deleted_inside(x, n):
    y = x * 2
    for _ in range(n):
        torchdynamo.graph_break()
        z = y + 1
        del z
    return y * 3 - 1


@program(4)
def in_a_with(x, n):
    with torch.no_grad():
        for i in range(n):
            y = x * i
            torchdynamo.graph_break()
            x = x + y
        x = x * 2
    return x * 3, torch.is_grad_enabled()


@program(5)
def left_by_what_is_suppressed(x, n):
    with contextlib.suppress(ValueError):
        for i in range(n):
            x = x + 1
            torchdynamo.graph_break()
            x = x * 2
            if i == 1:
                raise ValueError(i)
    return x * 3


@program(4)
def handled_inside(x, n):
    caught = []
    for i in range(n):
        try:
            x = x + 1
            torchdynamo.graph_break()
            if i % 2:
                raise KeyError(i)
            x = x * 2
        except KeyError as error:
            caught.append(error.args)
            x = x - 1
        finally:
            x = x + 0.5
    return x, caught


@program(3)
def raises_in_a_turn(x, n):
    for i in range(n):
        x = x + 1
        torchdynamo.graph_break()
        if i == 1:
            raise ValueError(x.shape)
        x = x * 2
    return x


@program(3)
def goes_on_early(x, n):
    for i in range(n):
        x = x + 1
        torchdynamo.graph_break()
        if i % 2:
            continue
        x = x * 2
    return x


@program(4)
def set_in_some_turns(x, n):
    for i in range(n):
        if i == 1:
            y = x * 2
        torchdynamo.graph_break()
        x = x + 1
    return x + y


@program(3)
def unset_within(x, n):
    y = x
    for i in range(n):
        z = y + i
        del y
        torchdynamo.graph_break()
        y = z * 2
    return y


@program(5)
def with_inside(x, n):
    for i in range(n):
        with torch.no_grad():
            x = x + 1
            torchdynamo.graph_break()
            x = x * 2
            if i == 2:
                break
    return x, torch.is_grad_enabled()


@program(3)
def left_from_two(x, n):
    for i in range(n):
        for j in range(n):
            x = x + 1
            torchdynamo.graph_break()
            if j == 1:
                break
            x = x * 2
        else:
            x = x + 100
        if i == 1:
            break
    else:
        x = x - 100
    return x


@program(3 if sys.version_info >= (3, 12) else 2)  # where the way to the `return` is behind the loop
def returns_from_a_with(x, n):
    with torch.no_grad():
        for i in range(n):
            x = x + 1
            torchdynamo.graph_break()
            if i == 2:
                return x * 2
    return x, torch.is_grad_enabled()


@program(3)
def several_items(x, n):
    found = []
    for i, (a, b) in enumerate(zip(range(n), [x] * n, strict=True)):
        c = a + b * i
        torchdynamo.graph_break()
        found.append(c * 2)
    return found


@program(3)
def finally_behind(x, n):
    found = []
    try:
        for i in range(n):
            x = x + 1
            torchdynamo.graph_break()
            found.append(i)
            if i == 2:
                raise ZeroDivisionError
    except ZeroDivisionError:
        x = x * 7
    finally:
        found.append(x * 2)
    return found, i


def fn_name(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__name__", ""))


def outcome(fn: Callable[..., Any], n: int) -> Any:
    try:
        return str(fn(X.clone(), n))
    except (ValueError, UnboundLocalError) as error:
        ours = [
            (each.name, each.lineno)
            for each in traceback.extract_tb(error.__traceback__)
            if each.name == fn_name(fn) and ONE_FRAME_SHOWN  # else what is behind the loop has a frame of its own
        ]
        return type(error), str(error), ours


@pytest.mark.parametrize(("fn", "graphs"), PROGRAMS, ids=lambda each: getattr(each, "__name__", ""))
def test_behind_a_loop(fn: Callable[..., Any], graphs: int) -> None:
    backend = Counting()
    compiled = torchdynamo.compile(fn, backend=backend, dynamic=False)
    assert outcome(compiled, 3) == outcome(fn, 3)
    if OUTLINES:
        assert len(backend.graphs) == graphs
    for n in (3, 1, 0):
        assert outcome(compiled, n) == outcome(fn, n)

"""Breaks in `try` and `with` blocks, at all kinds of instructions: the rest of the function begins inside of blocks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from counting import Counting

import torchdynamo

LOCK = threading.Lock()
LOG: list[Any] = []
X = torch.arange(3.0)
PROGRAMS: list[Any] = []


def program(graphs: int) -> Callable[[Any], Any]:
    def keep(fn: Any) -> Any:
        PROGRAMS.append(pytest.param(fn, graphs, id=fn.__name__))
        return fn

    return keep


class Manager:
    """Keeps KeyErrors."""

    def __enter__(self):
        LOG.append("in")
        return 3

    def __exit__(self, *raised):
        LOG.append((raised[0], type(raised[1]), raised[2] is None))
        return raised[0] is KeyError


def fails(x):
    torchdynamo.graph_break()
    raise KeyError(3)


@program(2)
def branch(x):
    y = x.sin()
    try:
        if y.sum() > 0:
            y = y * 2
        else:
            y = y.tan()
            LOG.append("else")
        y = y.cos()
    finally:
        y = y + 1
        LOG.append("finally")
    return y * 3


@program(2)
def value_of_and(x):
    try:
        y = x.sin()
        y = y * ((y.sum() > 0) and y.cos())
    except ValueError:
        LOG.append("not raised")
    return y * 3


@program(5)
def entered_as_it_is(x):
    y = x.sin()
    with LOCK, Manager() as n:
        y = y * n
        with open("/dev/null") as file:
            y = y + 1
            file.read()
            y = y * 2
    return y - 1


@program(5)
def in_what_is_called(x):
    def part(y):
        with Manager() as n:
            y = y * n
            torchdynamo.graph_break()
            y = y + 1
            fails(y)
        return y * 2

    try:
        x = part(x.sin())
        return part(x) + 1
    finally:
        LOG.append("end")


@program(2)
def raised_in_a_handler(x):
    y = x
    try:
        y = x * 2
        try:
            fails(y)
        except KeyError as error:
            LOG.append(sys.exc_info()[0])
            raise ValueError("other") from error
        finally:
            LOG.append("finally")
    except ValueError as error:
        LOG.append((type(error.__cause__), type(error.__context__), error.__suppress_context__))
        y = x + 1
    LOG.append(sys.exc_info())
    return y * 2


@program(2)
def escapes(x):
    y = x.cos()
    with Manager():
        torchdynamo.graph_break()
        y = y * 2
        with Manager():
            raise IndexError("through both")
    return y


@program(2)
def behind_a_handler(x):
    with Manager() as n:
        y = x * n
        fails(y)
    return y.cos() + 1


def outcome(fn: Callable[..., Any]) -> Any:
    LOG.clear()
    try:
        result = fn(X).tolist()
    except Exception as error:
        result = type(error), str(error), type(error.__context__)
    return result, list(LOG), sys.exc_info()


@pytest.mark.parametrize(("fn", "graphs"), PROGRAMS)
def test_as_eager(fn: Callable[..., Any], graphs: int) -> None:
    expected, backend = outcome(fn), Counting()
    compiled = torchdynamo.compile(fn, backend=backend)
    for _ in range(3):
        assert outcome(compiled) == expected
    assert len(backend.graphs) == graphs

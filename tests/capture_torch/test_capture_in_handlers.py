"""Breaks in `except` and `finally` blocks: what follows in the block is captured, and what follows it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from counting import Counting

import torchdynamo
from torchdynamo.bytecode import versions
from torchdynamo.bytecode.versions import OUTLINES

pytestmark = pytest.mark.skipif(not versions.EXCEPTION_TABLE, reason="such blocks stay Python on this version")

X = torch.arange(3.0)
PROGRAMS: list[tuple[Callable[..., Any], int]] = []


def program(graphs: int) -> Callable[[Any], Any]:
    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append((fn, graphs))
        return fn

    return register


@torchdynamo.skip
def boom(k):
    if k:
        raise ValueError(k)
    return 2


@program(4)
def in_except(x, n):
    x = x + 1
    try:
        boom(n)
    except ValueError as e:
        x = x * 2
        torchdynamo.graph_break()
        x = x * 3 + len(e.args)
    return x * 5 - 1


@program(3)
def exc_info(x, n):
    try:
        boom(n)
    except ValueError:
        x = x * 2
        torchdynamo.graph_break()
        a = sys.exc_info()[0]
        torchdynamo.graph_break()
        x = x * 3
    return x * 5, sys.exc_info()[0], a if n else None


@program(3)
def in_finally(x, n):
    try:
        x = x + 1
        boom(n)
    finally:
        x = x * 2
        torchdynamo.graph_break()
        x = x * 3
    return x * 5


@program(3)
def reraised(x, n):
    try:
        try:
            boom(n)
        except ValueError:
            x = x * 2
            torchdynamo.graph_break()
            x = x * 3
            raise
    except ValueError as e:
        return x * 5, e.args, [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.name == "reraised"]
    return x


@program(2)
def other(x, n):
    try:
        try:
            boom(n)
        except ValueError:
            x = x * 2
            torchdynamo.graph_break()
            raise KeyError(3)  # noqa: B904 - its context is looked at
    except KeyError as e:
        torchdynamo.graph_break()
        return x * 5, e.args, repr(e.__context__)
    return x


@program(4)
def nested(x, n):
    try:
        boom(n)
    except ValueError as e:
        try:
            boom(n + 1)
        except ValueError as g:
            x = x * 2
            torchdynamo.graph_break()
            x = x * 3
            r = (e.args, g.args, repr(g.__context__))
        torchdynamo.graph_break()
        x = x + sys.exc_info()[1].args[0]
    else:
        r = 0
    return x * 2, r, sys.exc_info()[0]


@program(2)
def in_loop(x, n):
    r = []
    for i in range(3):
        try:
            boom(i)
        except ValueError as e:
            x = x * 2
            torchdynamo.graph_break()
            r.append(e.args)
            if i == 2:
                break
            continue
        x = x + 1
    return x, r


@program(6)
def loop_in_except(x, n):
    try:
        boom(n)
    except ValueError as e:
        for i in range(3):
            x = x * 2
            torchdynamo.graph_break()
            x = x + i
            if i == n:
                break
        else:
            x = x - 1
        x = x + e.args[0]
    return x * 2, sys.exc_info()[0]


@program(2)
def returns(x, n):
    try:
        boom(n)
    except ValueError:
        x = x * 2
        torchdynamo.graph_break()
        return x + 1
    return x


class CM:
    def __init__(s, log):
        s.log = log

    def __enter__(s):
        return s

    def __exit__(s, t, v, tb):
        torchdynamo.graph_break()
        s.log.append((t, sys.exc_info()[0]))
        return True


@program(1)
def with_exit(x, n):
    log = []
    with CM(log):
        x = x * 2
        boom(n)
        x = x * 7
    return x * 2, log


@program(1)
def escapes(x, n):
    try:
        boom(n)
    except ValueError as e:
        x = x * 2
        torchdynamo.graph_break()
        raise RuntimeError("q") from e
    return x


def outcome(fn: Callable[..., Any], n: int) -> Any:
    try:
        return str(fn(X.clone(), n))
    except Exception as error:
        places = [(each.name, each.lineno) for each in traceback.extract_tb(error.__traceback__)]
        return type(error), str(error), repr(error.__cause__), repr(error.__context__), places[1:]


@pytest.mark.parametrize(("fn", "graphs"), PROGRAMS, ids=lambda each: getattr(each, "__name__", ""))
def test_in_a_handler(fn: Callable[..., Any], graphs: int) -> None:
    backend = Counting()
    compiled = torchdynamo.compile(fn, backend=backend, dynamic=False)
    assert outcome(compiled, 1) == outcome(fn, 1)
    if OUTLINES:  # else the loops among them stay Python
        assert len(backend.graphs) == graphs
    for n in (1, 0, 1):
        assert outcome(compiled, n) == outcome(fn, n)
        assert sys.exc_info()[0] is None


def test_texts_of_exceptions_that_were_there() -> None:
    def texts(error, x):
        return repr(error), repr(error.__context__), x + 1

    error = KeyError(3)
    error.__context__ = ValueError(1)
    expected = texts(error, X)
    assert str(torchdynamo.compile(texts, backend="eager")(error, X)) == str(expected)


def caught_with_another(x, n):
    try:
        y = x + 1
        torchdynamo.graph_break()
        boom(n)
        return y
    except ValueError as error:
        torchdynamo.graph_break()
        x = x * 2
        torchdynamo.graph_break()
        raise KeyError(n) from error
    finally:
        torchdynamo.graph_break()


def loops_where_it_is_caught(x, n):
    made = []
    try:
        y = x + 1
        torchdynamo.graph_break()
        boom(n)
    except ValueError:
        for i in range(3):
            torchdynamo.graph_break()
            made.append(y + i)
            for j in range(2):
                torchdynamo.graph_break()
                y = y + j
        if n == 2:
            raise
    return made


def waits_where_it_is_caught(x, n):
    def made():
        for i in range(2):
            try:
                y = x + i
                boom(n)
                yield y
            except ValueError:
                yield y * 2
                y = y + 1
                yield y
                if n == 2:
                    raise
            finally:
                yield x * 3

    return [each + 1 for each in made()]


def raised_on(x, n):
    try:
        try:
            torchdynamo.graph_break()
            boom(n)
            return x + 1
        except ValueError:
            y = x + 1
            torchdynamo.graph_break()
            raise
    except ValueError:
        torchdynamo.graph_break()
        if n == 2:
            raise RuntimeError from None
        return y + 2
    finally:
        x = x * 2
        torchdynamo.graph_break()


def branches_where_it_is_caught(x, n):
    try:
        y = x.sum()
        if y > 0:
            boom(n)
        return y
    except ValueError:
        x = x + 1
        if x.sum() > 0:
            if n == 2:
                raise
            return x
        return y


class Breaks(torch.nn.Module):
    def forward(self, x, n):
        x = x + 1
        torchdynamo.graph_break()
        boom(n)
        return x


breaks = Breaks()


def caught_of_a_module(x, n):
    try:
        return breaks(x * 2, n)
    except ValueError as error:
        raise KeyError(n) from error


@pytest.mark.parametrize(
    "fn",
    [
        *(caught_with_another, loops_where_it_is_caught, waits_where_it_is_caught, raised_on),
        *(branches_where_it_is_caught, caught_of_a_module),
    ],
)
def test_what_reaches_a_handler_at_a_break(fn: Callable[..., Any]) -> None:
    compiled = torchdynamo.compile(fn, backend="eager")
    for n in (0, 0, 1, 1, 2, 2):
        assert outcome(compiled, n) == outcome(fn, n)

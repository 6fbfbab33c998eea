# ruff: noqa: B904
"""What exceptions say they came from: `__context__`, `__cause__`, of those raised and caught in a captured frame."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

import torchdynamo

X: list[int] = []


def links(e):
    out = []
    while e is not None and len(out) < 6:
        out.append((type(e).__name__, str(e), type(e.__cause__).__name__, e.__suppress_context__))
        e = e.__context__
    return out


def implicit(x):
    try:
        try:
            X[1]
        except IndexError:
            raise KeyError("k")
    except KeyError as e:
        return x + 1, links(e)


def from_none(x):
    try:
        try:
            X[1]
        except IndexError:
            raise KeyError("k") from None
    except KeyError as e:
        return x + 1, links(e)


def in_finally(x):
    try:
        try:
            {}["a"]
        finally:
            1 // 0
    except ZeroDivisionError as e:
        return x + 1, links(e)


def not_each_others(x):
    a = ValueError("a")
    b = TypeError("b")
    try:
        try:
            raise a
        except ValueError:
            try:
                raise b
            except TypeError:
                raise a
    except ValueError as e:
        return x + 1, links(e), links(b)


def raised_again(x):
    try:
        raise ValueError(1)
    except ValueError as e:
        try:
            raise
        except ValueError as f:
            return x, links(f), e is f


def thrown_into_a_generator(x):
    def g():
        try:
            yield 1
        except ValueError:
            raise KeyError(2)

    k = g()
    next(k)
    try:
        k.throw(ValueError("v"))
    except KeyError as e:
        return x, links(e)


def stop_iteration_in_a_generator(x):
    def g():
        yield 1
        raise StopIteration

    try:
        list(g())
    except RuntimeError as e:
        return x, links(e), links(e.__cause__)


def out_of_exit(x):
    log = []

    class M:
        def __enter__(s):
            return s

        def __exit__(s, t, v, tb):
            log.append(links(v))
            raise TypeError("out")

    try:
        with M():
            try:
                1 // 0
            except ZeroDivisionError:
                raise KeyError("z")
    except TypeError as e:
        return x, log, links(e)


def callbacks_of_a_stack(x):
    def cb(*a):
        raise KeyError("cb")

    try:
        with contextlib.ExitStack() as s:
            s.callback(cb)
            s.callback(cb)
            raise ValueError("v")
    except KeyError as e:
        return x, links(e)


def suppressed_by_a_stack(x):
    with contextlib.ExitStack() as s:
        s.enter_context(contextlib.suppress(KeyError))
        s.push(lambda *a: False)
        raise KeyError(1)
    return x * 2


def handled_in_the_caller(x):
    def f():
        raise KeyError("in")

    try:
        raise ValueError("v")
    except ValueError:
        try:
            f()
        except KeyError as e:
            r = links(e)
    try:
        raise TypeError
    except TypeError as e:
        return x, r, links(e)


def written_before(x):
    e = ValueError("x")
    e.__context__ = KeyError("y")
    try:
        raise e
    except ValueError as f:
        return x, links(f)


def itself_as_context(x):
    try:
        try:
            raise ValueError(1)
        except ValueError as e:
            e.__context__ = e
            raise TypeError(2)
    except TypeError as f:
        return x, links(f)


def ring_of_contexts(x):
    try:
        try:
            raise KeyError("a")
        except KeyError as a:
            try:
                raise ValueError("b")
            except ValueError as b:
                a.__context__ = b
                raise TypeError("c")
    except TypeError as e:
        return x, links(e)


def context_manager_of_a_generator(x):
    @contextlib.contextmanager
    def cm():
        try:
            yield
        except KeyError as e:
            raise ValueError("t") from e

    try:
        with cm():
            raise KeyError("k")
    except ValueError as e:
        return x, links(e)


ROWS = [
    *(
        implicit,
        from_none,
        in_finally,
        not_each_others,
        raised_again,
        thrown_into_a_generator,
        stop_iteration_in_a_generator,
        out_of_exit,
        callbacks_of_a_stack,
        suppressed_by_a_stack,
        handled_in_the_caller,
        written_before,
        itself_as_context,
        ring_of_contexts,
        context_manager_of_a_generator,
    ),
]


@pytest.mark.parametrize("fn", ROWS)
def test_as_eager(fn: Any) -> None:
    compiled, x = torchdynamo.compile(fn, backend="eager", fullgraph=True), torch.ones(2)
    for _ in range(2):
        assert str(compiled(x)) == str(fn(x))


def test_handled_outside() -> None:
    """What the caller is handling is the context of what the frame raises."""

    def inner(x):
        try:
            raise KeyError("in")
        except KeyError as error:
            return x + 1, type(error.__context__).__name__

    torchdynamo.reset()
    compiled, x = torchdynamo.compile(inner, backend="eager"), torch.ones(2)
    assert compiled(x)[1] == "NoneType"
    try:
        raise ValueError
    except ValueError:
        assert compiled(x)[1] == "ValueError"
    assert compiled(x)[1] == "NoneType"

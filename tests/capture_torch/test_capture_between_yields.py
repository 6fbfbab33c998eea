"""Generators and coroutines: what lies between two waits is captured, and everything else is as in eager."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from counting import Counting

import torchdynamo
from torchdynamo.bytecode.versions import EXIT_SLOTS, OUTLINES

pytestmark = pytest.mark.skipif(not OUTLINES, reason="generators stay Python on this version")

X = torch.arange(3.0)
PROGRAMS: list[tuple[Callable[..., Any], int]] = []


def program(graphs: int) -> Callable[[Any], Any]:
    """Register a program, which Python runs: what is captured are generators and coroutines in it."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append((torchdynamo.skip(fn), graphs))
        return fn

    return register


@torchdynamo.skip
def drive(g):
    """everything that a caller can see"""
    out = []
    try:
        while True:
            out.append(next(g))
    except StopIteration as e:
        out.append(("ret", e.value))
    return out


@program(1)
def simple(x, n):
    def g(x):
        for i in range(n):
            x = x * 2
            yield x + i

    return drive(g(x))


@program(3)
def returns(x, n):
    def g(x):
        y = x + 1
        yield y
        y = y * 2
        yield y
        return y - 1

    return drive(g(x))


@program(2)
def sends(x, n):
    def g(x):
        total = x
        while True:
            got = yield total * 2
            if got is None:
                return total
            total = total + got

    it = g(x)
    out = [next(it)]
    for i in range(n):
        out.append(it.send(x * i))
    try:
        it.send(None)
    except StopIteration as e:
        out.append(e.value)
    return out


@program(3)
def throws(x, n):
    def g(x):
        try:
            yield x * 2
        except ValueError as e:
            x = x + 1
            yield x * 3
            yield e.args
        finally:
            x = x * 5
            yield x
        yield x + 1

    it = g(x)
    out = [next(it)]
    out.append(it.throw(ValueError("a")))
    return out + drive(it)


@program(2)
def closes(x, n):
    seen = []

    def g(x):
        try:
            y = x * 2
            yield y
            yield y * 2
        finally:
            seen.append(y + 1)

    it = g(x)
    next(it)
    it.close()
    return seen


@program(2)
def locals_seen(x, n):
    def g(x, k):
        y = x * 2
        z = [1]
        yield y
        del z
        w = y + 1
        yield w

    it = g(x, 3)
    out = [sorted(inspect.getgeneratorlocals(it).items())]
    next(it)
    out.append(sorted(inspect.getgeneratorlocals(it).items()))
    out.append(it.gi_frame.f_lineno)
    next(it)
    out.append(sorted(inspect.getgeneratorlocals(it).items()))
    out.append((it.gi_frame.f_lineno, inspect.getgeneratorstate(it)))
    return out


@program(4)
def delegates(x, n):
    def inner(x):
        yield x * 2
        return x + 1

    def g(x):
        y = yield from inner(x)
        yield y * 3
        yield from [x, x * 5]
        return y

    it = g(x)
    next(it)
    out = [it.gi_yieldfrom is not None]
    return out + drive(it)


@program(3)
def delegates_throw(x, n):
    def inner(x):
        try:
            yield x * 2
        except KeyError:
            yield x * 7
        return x + 1

    def g(x):
        try:
            y = yield from inner(x)
            yield y * 3
        except ValueError:
            yield x - 1

    it = g(x)
    next(it)
    out = [it.throw(KeyError)]
    out.append(next(it))
    out.append(it.throw(ValueError()))
    return out + drive(it)


@program(2)
def in_with(x, n):
    def g(x):
        with torch.no_grad():
            y = x * 2
            yield y
            y = y * 2
            yield y
        yield torch.is_grad_enabled()

    return drive(g(x))


@program(2)
def raises(x, n):
    def g(x):
        x = x * 2
        yield x
        x = x + 1
        raise RuntimeError("no")

    it = g(x)
    next(it)
    next(it)


@program(1)
def stopiter(x, n):
    def g(x):
        yield x * 2
        raise StopIteration(3)

    it = g(x)
    next(it)
    next(it)


@program(3)
def in_call(x, n):
    def g(x):
        out = []
        out.append((yield x * 2))
        s = torch.add(x, (yield x * 3))
        yield s, out

    it = g(x)
    out = [next(it)]
    out.append(it.send(4))
    out.append(it.send(x))
    return out


@program(3)
def contextman(x, n):
    seen = []

    @contextlib.contextmanager
    def cm(x):
        seen.append(x + 1)
        try:
            yield x * 2
        except ValueError:
            seen.append(x * 3)
        else:
            seen.append(x * 4)
        finally:
            seen.append(x * 5)

    with cm(x) as y:
        seen.append(y)
    with cm(x) as y:
        raise ValueError
    return seen


@program(1)
def genexp(x, n):
    return tuple(x * i + 1 for i in range(n) if i != 1)


@program(1)
def except_yield(x, n):
    def g(x):
        try:
            raise KeyError(1)
        except KeyError:
            y = x * 2
            yield sys.exc_info()[0], y
            try:
                raise
            except KeyError as e:
                yield x * 3, e.args, e.__context__
        yield sys.exc_info()[0], x * 4

    return drive(g(x))


@program(3)
def nestedloops(x, n):
    def g(x):
        for _i in range(2):
            for j in range(2):
                x = x * 2
                if j:
                    continue
                yield x + j
            else:
                x = x - 1
            yield x

    return drive(g(x))


@program(1)
def unsetvar(x, n):
    def g(x):
        for i in range(3):
            if i == 1:
                y = x * 2
            yield x + i
        yield y

    return drive(g(x))


@program(1)
def unbound(x, n):
    def g(x):
        if n < 0:
            y = x
        yield x * 2
        yield y

    return drive(g(x))


@program(1)
def reentrant(x, n):
    def g(x):
        y = x * 2
        yield y
        next(me)

    me = g(x)
    next(me)
    next(me)


class Base:
    def f(self, x):
        return x * 2


class D(Base):
    def f(self, x):
        yield super().f(x)
        y = super().f(x) + 1
        yield y


@program(2)
def supers(x, n):
    return drive(D().f(x))


@program(1)
def nonlocals(x, n):
    t = x

    def g():
        nonlocal t
        for i in range(n):
            t = t + i
            yield t * 2

    return drive(g()), t


@program(1)
def infos(x, n):
    def g(x, *args, k=3, **kw):
        yield x * k + len(args) + len(kw)

    it = g(x, 1, 2, z=3)
    return it.__name__, it.__qualname__, drive(it)


@program(2)
def brk(x, n):
    def g(x):
        for i in range(n):
            x = x * 2
            torchdynamo.graph_break()
            yield x + i
            torchdynamo.graph_break()
            x = x + 1

    return drive(g(x))


@program(3)
def coro(x, n):
    async def inner(x):
        return x * 2

    async def f(x):
        y = x + 1
        z = await inner(y)
        return z * 3

    return asyncio.run(f(x))


@program(2)
def coro_sleep(x, n):
    async def f(x):
        for _i in range(2):
            x = x * 2
            await asyncio.sleep(0)
            x = x + 1
        return x

    async def main():
        return await asyncio.gather(f(x), f(x + 1))

    return asyncio.run(main())


@program(4 if sys.version_info >= (3, 12) else 5)  # where it has an async comprehension inlined, `main` stays Python
def asyncgen(x, n):
    async def ag(x):
        for _i in range(3):
            x = x * 2
            yield x + 1

    class CM:
        async def __aenter__(self):
            return x * 3

        async def __aexit__(self, *a):
            return a[0] is ValueError

    async def main():
        out = []
        async for y in ag(x):
            out.append(y * 2)
        async with CM() as z:
            out.append(z + 1)
            raise ValueError
        out.append([q * 2 async for q in ag(x)])
        return out

    return asyncio.run(main())


@program(3)
def coro_raises(x, n):
    async def f(x):
        x = x * 2
        await asyncio.sleep(0)
        try:
            x = x + 1
            raise KeyError(1)
        finally:
            x = x * 2

    return asyncio.run(f(x))


def who():
    return sys._getframe(1).f_code.co_name, sys._getframe(2).f_code.co_name, sys._getframe(1).f_lineno


@program(2)
def callers(x, n):
    def g(x):
        y = x * 2
        yield y
        yield who(), y + 1

    return drive(g(x))


def outcome(fn: Callable[..., Any]) -> Any:
    try:
        return str(fn(X.clone(), 4))
    except Exception as error:
        places = [(each.name, each.lineno) for each in traceback.extract_tb(error.__traceback__)]
        return type(error), str(error), repr(error.__cause__), places[2:]


@pytest.mark.parametrize(("fn", "graphs"), PROGRAMS, ids=lambda each: getattr(each, "__name__", ""))
def test_between_yields(fn: Callable[..., Any], graphs: int) -> None:
    backend = Counting()
    compiled = torchdynamo.compile(fn, backend=backend, dynamic=False)
    expected = outcome(fn)
    assert outcome(compiled)[-1] == expected[-1]
    if fn is not in_with or EXIT_SLOTS == 1:  # else it stays Python (docs/limits.md)
        assert len(backend.graphs) >= graphs
    assert outcome(compiled) == expected


@torchdynamo.skip
def once_more(fn: Callable[..., Any], times: int) -> Any:
    return [drive(fn(X, 2)) for _ in range(times)]


def test_a_generator_without_tensors_stays_python() -> None:
    """Its parts are looked at a few times."""

    def numbers(x, n):
        yield len(x.shape)
        yield n + 1
        yield from range(n)
        yield n * 2
        yield n * 3

    compiled = torchdynamo.compile(once_more, backend="eager")
    assert compiled(numbers, 8) == once_more(numbers, 8)
    assert torchdynamo._native.skip_reason(numbers.__code__) == "no operators"
    assert torchdynamo._native.cache_entries(numbers.__code__) == []


def test_nothing_is_shown_of_the_parts() -> None:
    """A part's frame is the generator's for whoever walks the stack."""
    seen: list[Any] = []

    @torchdynamo.skip
    def look() -> None:
        frame = sys._getframe(1)
        seen.append([(each.f_code.co_name, each.f_lineno) for each in (frame, frame.f_back)])

    def waits(x, n):
        y = x * n
        look()
        yield y
        look()
        yield y + 1

    compiled = torchdynamo.compile(once_more, backend="eager")
    once_more(waits, 1)
    compiled(waits, 1)
    assert seen[2:] == seen[:2]


def test_a_loop_over_another_iterator_within() -> None:
    """The generator waits in each turn, so a part begins and ends in the middle of the loop."""

    def doubled(values, x):
        for value in values:
            y = value * 2 + x
            yield y - 1
        yield x

    def values(x, n):
        return doubled(map(torch.neg, [x] * n), x)

    backend = Counting()
    compiled = torchdynamo.compile(torchdynamo.skip(once_more), backend=backend)
    assert str(compiled(torchdynamo.skip(values), 1)) == str(once_more(values, 1))
    assert len(backend.graphs) == 2

# ruff: noqa: E501
"""Every construct of the language does the same after a round trip: results, exceptions, yields, lines."""

from __future__ import annotations

import asyncio
import re
import sys
import traceback
from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest

# Each text defines f; what follows the line of dashes are expressions to try on it.
PROGRAMS = {
    "arguments": """
def f(a, b=2, /, c=3, *rest, d, e=5, **more):
    return a, b, c, rest, d, e, more
---
f(1, d=4)
f(1, 2, 3, 4, 5, d=6, x=7, y=8)
f(d=1)
""",
    "cells": """
def f(x, y):
    def outer(z):
        nonlocal y
        y += z
        class K:
            v = x
            def m(self): return x, y, z, __class__
        return K, lambda: (x, y, z)
    k, g = outer(3)
    return k.v, k().m()[:3], g(), y
---
f(1, 2)
""",
    "unset": """
def f(n):
    if n > 1: x = n
    if n > 2: del x
    return x
---
f(2)
f(1)
f(3)
""",
    "unset cell": """
def f(n):
    if n: x = n
    def g(): return x
    return g()
---
f(2)
f(0)
""",
    "super": """
class A:
    def m(self, *a, **k): return 'A', a, k
    @property
    def p(self): return 7
class B(A):
    def m(self, x): return super().m(x, k=x), super(B, self).m(), super().p, super().m
    def n(self): return super().nothing
    def o(self):
        def inner(): return self
        return super().m(inner() is self)
f = lambda name, *a: getattr(B(), name)(*a)
---
f('m', 3)[:3]
f('n')
f('o')
""",
    "operators": """
def f(a, b):
    out = [a + b, a - b, a * b, a / b, a // b, a % b, a ** b, a << b, a >> b, a & b, a | b, a ^ b, -a, +a, ~a, not a]
    a += b; a -= 1; a *= b; a //= 2; a %= 100; a **= 2; a <<= 1; a >>= 1; a &= 255; a |= 1; a ^= 3
    out += [a, a < b, a <= b, a == b, a != b, a > b, a >= b, a is b, a is not b, a in (b,), a not in (b,), a < b < 9]
    a /= b
    return out, a
---
f(7, 2)
f(0, 3)
f(1, 0)
f('a', 1)
""",
    "matmul": """
class M:
    def __matmul__(self, o): return 'm', o
    def __imatmul__(self, o): return 'im', o
def f(x):
    m = M(); r = m @ x; m @= x
    return r, m
---
f(3)
""",
    "containers": """
def f(a, *b):
    d = {'k': a, **{'z': 1}, 'q': b}
    s = {a, *b}
    l = [0, *b, a]
    t = (*b, a)
    x, *y, z = l
    (p, q), r = (a, x), 3
    l[1:2] = [8, 9]; del l[0]; l[-1] += 5
    return d, s, l, t, x, y, z, p, q, r, l[1:], l[:1], l[::2], d['k'], [*l][0:1:1], f'{a!r:>{4}} {a:03} {a!s} {b}'
---
f(1, 2, 3)
f(1)
""",
    "constants": """
def f(x):
    return 0.0, -0.0, 0, False, 1, True, 1.0, (1, 1.0), (True, 1), 1j, -0j, b'a', 'a', ..., None, frozenset((1,)), 1e999
---
[(type(v), repr(v)) for v in f(1)]
""",
    "comprehensions": """
def f(xs):
    x = 'outer'
    a = [x * 2 for x in xs if x]
    b = {x: [y for y in range(x)] for x in xs}
    c = {x % 2 for x in xs}
    d = [(lambda: x)() for x in xs]
    e = list(y for x in xs for y in (x, -x))
    return a, b, c, d, e, x, [f() for f in [lambda: x for x in xs]]
---
f([0, 1, 2])
f([])
f([1, None])
""",
    "comprehension of an unset name": """
def f(xs, k):
    if k: x = 5
    r = [x for x in xs]
    return r, x
---
f([1], 1)
f([1], 0)
""",
    "walrus": """
def f(xs):
    if (n := len(xs)) > 1 and any((m := x) > 2 for x in xs): return n, m
    return n
---
f([1, 3])
f([])
""",
    "loops": """
def f(n):
    out = []
    for i in range(n):
        for j in range(i):
            if j == 2: continue
            if j > 3: break
            out.append((i, j))
        else:
            out.append('else')
        if i > 5: break
    else:
        out.append('done')
    while n:
        n -= 1
        if n % 2: continue
        out.append(n)
    else:
        out.append('w')
    while True:
        n += 1
        try:
            if n > 3: break
        finally:
            out.append('f')
    for i in (): pass
    return out
---
f(4)
f(8)
f(0)
""",
    "boolean": """
def f(a, b, c):
    x = a and b or c
    y = not (a or b) and c
    z = a if b else c
    if a is None or b is not None and not c: x = -1
    return x, y, z, not not a, not not (a is b), (a and b) is c, a or (b and c) or 0, not a, bool(a) == (not not a)
---
f(0, 1, 2)
f([], [1], '')
f(None, None, 0)
f(1, 2, 3)
""",
    "try": """
def f(n, log):
    try:
        log.append('t')
        if n == 1: raise ValueError('one')
        if n == 2: raise KeyError('two') from ValueError('cause')
        if n == 3: return 'ret'
        if n == 4: 1 / 0
        if n == 5: raise TypeError
    except ValueError as e:
        log.append(repr(e))
        try:
            raise RuntimeError('inner')
        except RuntimeError as r:
            log.append(repr(r.__context__))
    except (KeyError, ZeroDivisionError) as e:
        log.append((repr(e), repr(e.__cause__)))
        if n == 4: raise
        raise LookupError('new') from None
    else:
        log.append('else')
    finally:
        log.append('fin')
        if n == 6: return 'from finally'
    return 'end', log
---
f(0, [])
f(1, [])
f(2, [])
f(3, [])
f(4, [])
f(5, [])
f(6, [])
""",
    "try in loop": """
def f(n):
    out = []
    for i in range(n):
        try:
            if i == 1: continue
            if i == 3: break
            if i == 2: raise ValueError(i)
            out.append(i)
        except ValueError as e:
            out.append(e.args)
            continue
        finally:
            out.append('f')
    return out
---
f(6)
f(1)
""",
    "with": """
class C:
    def __init__(self, name, log, swallow=False): self.name, self.log, self.swallow = name, log, swallow
    def __enter__(self): self.log.append('+' + self.name); return self
    def __exit__(self, t, v, tb): self.log.append(('-' + self.name, t and t.__name__)); return self.swallow
def f(n, log):
    with C('a', log) as a, C('b', log, n == 2):
        if n == 1: return log
        if n == 2: raise ValueError
        if n == 3: raise KeyError(log)
        for i in range(3):
            with C(str(i), log):
                if i == 1: break
        log.append(a.name)
    with C('c', log): pass
    return log
---
f(0, [])
f(1, [])
f(2, [])
f(3, [])
""",
    "generator": """
def g(n):
    got = []
    try:
        for i in range(n):
            try:
                got.append((yield i))
            except KeyError as e:
                got.append(repr(e))
        return got
    finally:
        yield 'last'
def f(n, *acts):
    out, it = [], g(n)
    for act in acts:
        try:
            out.append(act(it))
        except BaseException as e:
            out.append(repr(e))
    return out
---
f(2, next, next, next, next)
f(2, next, lambda i: i.send(5), lambda i: i.throw(KeyError(1)), next, next)
f(2, next, lambda i: i.throw(ValueError(1)), next)
f(2, lambda i: i.throw(ValueError(2)), next)
f(2, lambda i: i.close(), next)
f(2, next, lambda i: i.close())
f(0, lambda i: i.send(3))
""",
    "stop iteration": """
def g():
    yield 1
    raise StopIteration(3)
def f(): return list(g())
---
f()
""",
    "yield from": """
def sub(log):
    try:
        log.append((yield 1))
        yield 2
    except ValueError:
        yield 'v'
    finally:
        log.append('closed')
    return 'result'
def g(log):
    r = yield from sub(log)
    log.append(r)
    yield from (7, 8)
def f(*acts):
    log = []
    it, out = g(log), []
    for act in acts:
        try:
            out.append(act(it))
            out.append(it.gi_yieldfrom is not None)
        except BaseException as e:
            out.append(repr(e))
    return out, log
---
f(next, lambda i: i.send(4), next, next, next)
f(next, lambda i: i.throw(ValueError), next, next)
f(next, lambda i: i.throw(KeyError))
f(next, lambda i: i.close())
""",
    "coroutine": """
class Wait:
    def __init__(self, v): self.v = v
    def __await__(self):
        r = yield self.v
        return r
class CM:
    def __init__(self, log, swallow=False): self.log, self.swallow = log, swallow
    async def __aenter__(self): self.log.append('in'); return await Wait('aenter')
    async def __aexit__(self, *e): self.log.append(('out', e[0] and e[0].__name__)); await Wait('aexit'); return self.swallow
async def ag(n):
    for i in range(n):
        await Wait(i)
        yield i * 10
async def co(log, n):
    async with CM(log, n == 2) as v:
        log.append(v)
        async for x in ag(2):
            log.append(x)
            if n == 1: raise KeyError(x)
            if n == 2: raise ValueError(x)
        else:
            log.append('else')
    log.append([x async for x in ag(3) if x])
    log.append([await Wait(x) for x in (1, 2)])
    return 'end'
def f(n):
    log, out = [], []
    c = co(log, n)
    try:
        value = None
        while True:
            value = c.send(value)
            out.append(value)
    except BaseException as e:
        out.append(repr(e))
    return out, log
---
f(0)
f(1)
f(2)
""",
    "import": """
def f():
    import os.path as p, collections.abc
    from string import digits as d, ascii_letters
    from os import *  # only at top level
    return p.__name__, collections.__name__, d, ascii_letters[:2]
---
f()
""".replace("    from os import *  # only at top level\n", ""),
    "assert": """
def f(x):
    assert x, 'no ' + str(x)
    assert x > 1
    return x
---
f(0)
f(1)
f(2)
""",
    "calls": """
def g(*a, **k): return a, k
class O:
    def m(self, *a, **k): return a, k
    c = classmethod(lambda cls, *a: (cls.__name__, a))
    s = staticmethod(lambda *a: a)
def f(x):
    o, t, d = O(), (1, 2), {'q': 1}
    return (g(), g(x), g(x, y=x), g(*t), g(*t, x, *t), g(**d), g(*t, z=3, **d), o.m(x, k=x), o.m(*t, **d), o.c(1), o.s(2),
            (lambda v, w=x: (v, w))(1), print, len(t), [].append(x), 'a'.join(['b', 'c']), O.m(o, 3))
---
f(5)[:11]
f(5)[11:]
""",
    "globals": """
G = 1
def f(x):
    global G, H
    G += x
    H = G
    r = G, H
    del H
    return r
---
f(1)
f(2)
""",
    "functions": """
def f(x):
    def g(a: int, b: 'str' = x, *, c: x = 3, d) -> None: 'doc'
    h = lambda a=x, *, k=2: (a, k, x)
    return (g.__name__, g.__qualname__, g.__doc__, g.__defaults__, g.__kwdefaults__, g.__annotations__, h(), h.__qualname__,
            h.__doc__, (lambda: 'text').__doc__)
---
f(3)
""",
    "many constants": "def f(i):\n    return [" + ", ".join(f"{i}.5" for i in range(700)) + "][i]\n---\nf(3)\nf(699)\n",
    "far jumps": "def f(i):\n  for k in range(i):\n    if k == 2:\n"
    + "".join(f"      a{n} = k + {n}\n" for n in range(400))
    + "    try:\n"
    + "".join(f"      b{n} = k + {n}\n" for n in range(400))
    + "      1 // (k - 3)\n    except ZeroDivisionError: return b3, a399\n---\nf(9)\nf(1)\n",
    "match": """
class P:
    __match_args__ = ('x', 'y')
    def __init__(self, x, y): self.x, self.y = x, y
def f(v):
    match v:
        case 0 | 1: return 'small'
        case int(n) if n > 100: return 'big', n
        case str() as s: return s.upper()
        case [a, b]: return 'two', a, b
        case [a, *rest, (1 | 2) as z]: return a, rest, z
        case {'k': P(x=3, y=w), **others}: return w, others
        case {'k': k}: return k
        case P(x, y=5): return 'p', x
        case P(1, _): return 'p1'
        case None | True: return 'c'
        case _: return 'else'
---
[f(v) for v in (0, 1, 50, 500, 'abc', [3, 4], [3, 4, 5, 1], [1, 2, 3], None, True, 3.5)]
[f(v) for v in ({'k': P(3, 4), 'm': 1}, {'k': P(2, 4)}, {}, P(9, 5), P(1, 1), P(2, 2))]
""",
    "except star": """
def f(n):
    out = []
    try:
        try:
            if n: raise ExceptionGroup('g', [ValueError(1), KeyError(2), ExceptionGroup('h', [TypeError(3), ValueError(4)])])
        except* ValueError as e:
            out.append(('v', [repr(x) for x in e.exceptions]))
            if n == 2: raise RuntimeError('r')
        except* KeyError:
            out.append('k')
        else:
            out.append('else')
        finally:
            out.append('f')
    except BaseExceptionGroup as e:
        out.append(repr(e))
    return out
---
f(0)
f(1)
f(2)
""",
    "type parameters": """
def f(x):
    def g[T: int, *Ts, **P](a: T) -> T: return a
    class K[S]:
        def m(self, a: S): return a, x
    type A[T] = list[T]
    return g(x), [t.__name__ for t in g.__type_params__], K[int]().m(1), A.__value__, g.__type_params__[0].__bound__
---
f(3)
""",
}


def split(name: str) -> tuple[CodeType, list[str]]:
    text, trials = PROGRAMS[name].split("---\n")
    try:
        return compile(text, name, "exec"), trials.splitlines()
    except SyntaxError:
        pytest.skip("not in this Python")


def outcome(space: dict[str, Any], trial: str) -> str:
    try:
        result = repr(eval(trial, space))
    except Exception as error:
        steps = [(step.lineno, step.name, step.line) for step in traceback.extract_tb(error.__traceback__)[1:]]
        if sys.version_info >= (3, 11):
            steps += [(step.colno, step.end_colno) for step in traceback.extract_tb(error.__traceback__)[1:]]
        result = f"{error!r} {steps}"
    return re.sub(r"0x[0-9a-f]+", "0x", result)


def lines(space: dict[str, Any], trial: str) -> list[tuple[str, str, int]]:
    """What a debugger sees, but for a line reported twice on end (a jump may report it or not)."""
    seen: list[tuple[str, str, int]] = []
    current: dict[Any, int] = {}

    def trace(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename in PROGRAMS:
            if event != "line" or current.get(frame) != frame.f_lineno:
                seen.append((event, frame.f_code.co_name, frame.f_lineno))
            current[frame] = frame.f_lineno
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        outcome(space, trial)
    finally:
        sys.settrace(before)
    return seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, converted: Callable[[CodeType], CodeType]) -> None:
    code, trials = split(name)
    plain, ours = {"__name__": "m"}, {"__name__": "m"}
    exec(code, plain)
    exec(converted(code), ours)
    for trial in trials:
        assert outcome(ours, trial) == outcome(plain, trial), trial


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {"globals"}))
def test_lines_that_a_debugger_sees(name: str, converted: Callable[[CodeType], CodeType]) -> None:
    code, trials = split(name)
    plain, ours = {"__name__": "m"}, {"__name__": "m"}
    exec(code, plain)
    exec(converted(code), ours)
    for trial in trials:
        assert lines(ours, trial) == lines(plain, trial), trial


def test_tasks(again: Callable[[Any], Any]) -> None:
    async def work(queue: asyncio.Queue[int], out: list[int]) -> None:
        async with lock:
            for _ in range(3):
                out.append(await asyncio.wait_for(queue.get(), 5))

    async def main() -> list[int]:
        nonlocal lock
        lock = asyncio.Lock()
        queue: asyncio.Queue[int] = asyncio.Queue()
        out: list[int] = []
        task = asyncio.create_task(again(work)(queue, out))
        for number in range(3):
            await queue.put(number)
            await asyncio.sleep(0)
        await task
        return out

    lock: Any = None
    assert asyncio.run(again(main)()) == [0, 1, 2]

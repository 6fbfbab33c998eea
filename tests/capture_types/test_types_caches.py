"""functools.lru_cache round functions that the frame makes: what is asked again, forgotten, kept apart."""

from __future__ import annotations

import functools
import gc
import warnings
from typing import Any

import pytest
import torch
from following import check

import torchdynamo
from torchdynamo.capture.vm import cached_calls

X = torch.arange(4.0)


def recursive(x: Any) -> Any:
    @functools.lru_cache(None)
    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return x * fib(20), fib.__name__, fib.__wrapped__(3)


def with_a_limit(x: Any) -> Any:
    asked = []

    @functools.lru_cache(maxsize=2)
    def f(a: Any, *, k: int = 1) -> Any:
        asked.append((a, k))
        return [a, k]

    for a in (1, 2, 1, 3, 2):
        f(a)
    f(1, k=2)
    f(1.0, k=2)
    return x + 1, asked, f(3) is f(3)


def of_tensors(x: Any) -> Any:
    asked = []

    @functools.cache
    def f(t: Any) -> Any:
        asked.append(1)
        return t + 1

    return f(x) + f(x) + f(x * 2), asked


def by_type(x: Any) -> Any:
    asked = []

    @functools.lru_cache(typed=True)
    def f(a: Any) -> Any:
        asked.append(a)
        return a

    for a in (1, 1.0, 1, True):
        f(a)
    return asked, x + 1


def that_raise(x: Any) -> Any:
    asked = []

    @functools.lru_cache
    def f(a: Any) -> Any:
        asked.append(a)
        raise ValueError(a)

    for a in (1, 1, []):
        try:
            f(a)
        except (ValueError, TypeError) as error:
            asked.append(str(error))
    return x + 1, asked


def kept(x: Any) -> Any:
    @functools.lru_cache(maxsize=3)
    def f(a: Any) -> Any:
        """Doubles."""
        return a * 2

    return x + 1, f


def counted(x: Any) -> Any:
    told = []

    @functools.lru_cache(maxsize=2)
    def f(a: Any) -> Any:
        told.append(f.cache_info())
        if a > 5:
            raise ValueError(a)
        return a

    for a in (1, 2, 1, 3, 2, 6, 6):
        try:
            f(a)
        except ValueError:
            told.append(f.cache_info().misses)
    told.append(f.cache_info())
    f.cache_clear()
    told.append(f.cache_info())
    return x + f(1), f(1), told, f.cache_info(), f.cache_parameters()


def cleared(x: Any) -> Any:
    @functools.lru_cache(maxsize=0)
    def f(a: Any) -> Any:
        return a

    f(1)
    found = f.cache_info()
    f.cache_clear()
    return x + f(1), found, f.cache_info().hits


@pytest.mark.parametrize("fn", [recursive, with_a_limit, of_tensors, by_type, that_raise, counted, cleared])
def test_caches(fn: Any) -> None:
    check(fn, (X,))


COUNTED = {"calls": 0}


@functools.lru_cache(None)
def of_third_calls(_: int) -> int:
    if COUNTED["calls"] < 3:
        raise ValueError("too early", COUNTED["calls"])
    return COUNTED["calls"]


def caught(x: Any) -> Any:
    COUNTED["calls"] += 1
    x = x * 2
    try:
        return x + of_third_calls(3), None
    except ValueError as error:
        return x - 1, error.args


def unhashable(x: Any) -> Any:
    try:
        return x + of_third_calls([])  # type: ignore[arg-type]
    except TypeError as error:
        return x - 1, str(error)


def test_what_a_cached_function_raises_is_asked_in_each_call() -> None:
    """Python keeps results, and no errors; what was counted before the call is seen by it."""

    def calls(fn: Any) -> list[Any]:
        COUNTED["calls"] = 0
        of_third_calls.cache_clear()
        return [fn(X)[1] if at < 2 else fn(X)[0].tolist() for at in range(4)]

    compiled = torchdynamo.compile(caught, backend="eager")
    assert calls(compiled) == calls(caught)
    assert calls(compiled) == calls(caught)
    check(unhashable, (X,))


LATER: dict[Any, int] = {}
from_later = functools.lru_cache(LATER.__getitem__)
of_anything = functools.lru_cache(maxsize=0)(len)


def found_later(x: Any) -> Any:
    try:
        return x + from_later(3)
    except KeyError:
        return x


def not_kept(x: Any) -> Any:
    try:
        return x + of_anything([1, 2]) + of_anything(3)  # type: ignore[arg-type]
    except TypeError as error:
        return x, str(error)


def test_what_a_cached_function_of_c_raises_is_asked_in_each_call() -> None:
    LATER.clear()
    compiled = torchdynamo.compile(found_later, backend="eager")
    assert torch.equal(compiled(X), X)
    LATER[3] = 4
    assert torch.equal(compiled(X), X + 4)
    got, wanted = torchdynamo.compile(not_kept, backend="eager")(X), not_kept(X)
    assert torch.equal(got[0], wanted[0]) and got[1] == wanted[1]


def test_a_cache_that_is_kept() -> None:
    got, wanted = torchdynamo.compile(kept, backend="eager", fullgraph=True)(X)[1], kept(X)[1]
    assert (got(2), got(2), got.cache_info()) == (wanted(2), wanted(2), wanted.cache_info())
    assert (got.__doc__, got.__name__, got.cache_parameters()) == ("Doubles.", "f", wanted.cache_parameters())
    assert list(got.__dict__) == list(wanted.__dict__)


# -- functions of the program, whose caches are their own --------------------------------------------------------------
HEAD = """
import functools, threading, torch, torchdynamo, warnings
LOG = []
def cleared(*caches):
    LOG.clear()
    for each in caches: each.cache_clear()
"""
OF_THE_PROGRAM = {
    "a list that the caller has written to": (
        "S = []\n@functools.cache\ndef g(n): return len(S)\n"
        "def f(x): S.append(1); return x * g(3)\ndef reset(): S.clear(); cleared(g)"
    ),
    "a tensor that the caller has written to": (
        "T = torch.zeros(2)\n@functools.cache\ndef g(n): return T.sum().item()\n"
        "def f(x): T.add_(1); return x * g(3)\ndef reset(): T.zero_(); cleared(g)"
    ),
    "random numbers that the caller has drawn": (
        "@functools.cache\ndef g(n): return torch.rand(()).item()\n"
        "def f(x): return torch.rand(2) + g(3) + torch.rand(2)\ndef reset(): torch.manual_seed(0); cleared(g)"
    ),
    "a device that the caller has set": (
        "@functools.cache\ndef g(n): return torch.empty(1).device.type\n"
        "def f(x):\n    with torch.device('meta'): found = g(3)\n    return x * len(found)\ndef reset(): cleared(g)"
    ),
    "another state in each call": (
        "S = []\n@functools.cache\ndef g(n): LOG.append(n); return n\n"
        "def f(x): S.append(1); return x * g(len(S))\ndef reset(): S.clear(); cleared(g)"
    ),
    "keywords": (
        "@functools.cache\ndef g(n, *, m): LOG.append(n); return len(LOG)\ndef f(x): return x * g(1, m=2)\n"
        "def reset(): cleared(g)\nbetween = g.cache_clear"
    ),
    "types": (
        "@functools.lru_cache(typed=True)\ndef g(n): LOG.append(n); return len(LOG)\n"
        "def f(x): return x * g(1) + g(1.0) * 2\ndef reset(): cleared(g)\nbetween = g.cache_clear"
    ),
    "methods": (
        "class M:\n    @functools.lru_cache(None)\n    def g(self, n): LOG.append(n); return len(LOG)\n"
        "m = M()\ndef f(x): return x * m.g(1)\ndef reset(): cleared(M.g)\nbetween = M.g.cache_clear"
    ),
    "keys that the caller makes": (
        "class Key:\n    def __init__(self, n): self.n = n\n    def __hash__(self): return hash(self.n)\n"
        "    def __eq__(self, other): return type(other) is Key and other.n == self.n\n"
        "@functools.cache\ndef g(key): LOG.append(key.n); return len(LOG)\n"
        "def f(x): return x * g(Key(3))\ndef reset(): cleared(g)\nbetween = g.cache_clear"
    ),
    "a limit, and a result that took the place of another": (
        "S = [10.0]\n@functools.lru_cache(2)\ndef g(n): return n * S[0]\n"
        "def f(x): return x * g(3)\ndef reset(): S[0] = 10.0; cleared(g)\n"
        "def between():\n    S[0] += 1\n    for n in (4, 5, 6, 3): g(n)"
    ),
    "a limit, without arguments": (
        "@functools.lru_cache(1)\ndef g(): LOG.append(1); return len(LOG)\n"
        "def f(x): return x * g()\ndef reset(): cleared(g)\nbetween = g.cache_clear"
    ),
    "a key that the caller changes": (
        "class Key:\n    def __init__(self, n): self.n = n\n    def __hash__(self): return hash(self.n)\n"
        "    def __eq__(self, other): return type(other) is Key and other.n == self.n\n"
        "@functools.cache\ndef g(key): LOG.append(key.n); return [key]\n"
        "def f(x):\n    key = Key(5)\n    found = g(key)[0] is key\n    key.n = 6\n    return x + len(LOG) + found\n"
        "def reset(): cleared(g)"
    ),
    "a key that was changed where it is kept": (
        "class Key:\n    def __init__(self, n): self.n = n\n    def __hash__(self): return 1\n"
        "    def __eq__(self, other): return other.n == self.n\n"
        "@functools.cache\ndef g(key): LOG.append(key.n); return key\n"
        "def f(x): g(Key(2)); return x + len(LOG)\n"
        "def reset(): cleared(g)\n"
        "def between():\n    if len(LOG) == 1: g(Key(3))\n    elif len(LOG) == 2: g(Key(2)).n = 7"
    ),
    "a key that cannot be compared": (
        "class Key:\n    def __hash__(self): return 1\n"
        "    def __eq__(self, other): raise ValueError('no equal')\n"
        "@functools.cache\ndef g(key): LOG.append(1); return len(LOG)\n"
        "def f(x):\n    try: return x * g(Key())\n    except ValueError: return x - 1\n"
        "def reset(): cleared(g)"
    ),
    "an object of the caller's, twice": (
        "class Key: pass\n@functools.cache\ndef g(key): LOG.append(1); return object()\n"
        "def f(x):\n    key = Key()\n    return x + (g(key) is g(key))\n"
        "def reset(): cleared(g)\ndef between(): LOG.append(g.cache_info())"
    ),
    "a tensor of the caller's, twice": (
        "@functools.cache\ndef g(t): LOG.append(1); return t + 1\n"
        "def f(x):\n    y = x * 2\n    return x + (g(y) is g(y))\n"
        "def reset(): cleared(g)\ndef between(): LOG.append(g.cache_info())"
    ),
    "a NaN of the caller's": (
        "@functools.cache\ndef g(n): LOG.append(1); return len(LOG)\n"
        "def f(x): return x * g(float('nan')) + g((1, float('nan')))\ndef reset(): cleared(g)"
    ),
    "no room for two": (
        "@functools.lru_cache(1)\ndef g(n): LOG.append(n); return n\n"
        "def f(x): return x * g(2) * g(3)\ndef reset(): cleared(g)"
    ),
    "no room": (
        "@functools.lru_cache(0)\ndef g(n): LOG.append(n); return len(LOG)\n"
        "def f(x): return x * g(2)\ndef reset(): cleared(g)"
    ),
    "raises what is no Exception": (
        "@functools.cache\ndef g(n): raise SystemExit(n)\n"
        "def f(x):\n    try: return x * g(3)\n    except SystemExit: return x - 1\ndef reset(): cleared(g)"
    ),
    "warns of its caller": (
        "@functools.cache\ndef g(n): warnings.warn('old', DeprecationWarning, stacklevel=2); return n\n"
        "def show(message, kind, file, line, *rest): LOG.append((file, line))\n"
        "def f(x):\n    y = x * 2\n    return y * g(3)\n"
        "def reset():\n    cleared(g)\n    warnings.showwarning = show\n    warnings.simplefilter('always')"
    ),
}


@pytest.mark.parametrize("about", OF_THE_PROGRAM)
def test_functions_of_the_program_with_a_cache(about: str) -> None:
    """Called three times, with the same results and effects as in eager."""
    space: dict[str, Any] = {"__name__": "cached"}
    exec(compile(HEAD + OF_THE_PROGRAM[about], "<cached>", "exec"), space)

    def outcome(fn: Any) -> Any:
        with warnings.catch_warnings():
            space["reset"]()
            results = []
            for _ in range(3):
                results.append(fn(X[:2]).tolist())
                space.get("between", int)()
            return results, list(space["LOG"])

    wanted = outcome(space["f"])
    compiled = torchdynamo.compile(space["f"], backend="eager")
    assert outcome(compiled) == wanted
    assert outcome(compiled) == wanted


WAITS = """
inner = torchdynamo.compile(lambda x: x + 1, backend="eager")
@functools.cache
def g(n):
    thread = threading.Thread(target=lambda: LOG.append(inner(torch.ones(2)).sum().item()))
    thread.start()
    thread.join(20)
    return thread.is_alive()
def f(x): return x + 1, g(1)
"""


def test_a_cached_function_waits_for_a_thread_that_calls_what_is_compiled() -> None:
    space: dict[str, Any] = {"__name__": "waits"}
    exec(compile(HEAD + WAITS, "<waits>", "exec"), space)
    assert torchdynamo.compile(space["f"], backend="eager")(X)[1] is False
    assert space["LOG"] == [4.0]


@functools.lru_cache(None)
def of_object(obj: Any, n: int) -> int:
    return n * 2


class Box:
    pass


def test_nothing_is_kept_of_a_key_whose_object_is_gone() -> None:
    def call() -> None:
        box = Box()
        of_object(box, 3)
        compiled = torchdynamo.compile(lambda x: x * of_object(box, 3), backend="eager", fullgraph=True)
        assert compiled(torch.ones(2)).tolist() == [6.0, 6.0]

    gc.collect()
    before = len(cached_calls._look_ups)
    call()
    assert len(cached_calls._look_ups) == before + 1
    of_object.cache_clear()
    gc.collect()
    assert len(cached_calls._look_ups) == before


def test_a_cached_function_that_raises_runs_once_for_each_call() -> None:
    asked: list[int] = []

    @functools.cache
    def checked(n: int) -> int:
        asked.append(n)
        if len(asked) < 3:
            raise ValueError(n)
        return n

    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * checked(3)
        except ValueError:
            return x + 1

    compiled = torchdynamo.compile(program, backend="eager")
    found = [compiled(torch.ones(2))[0].item() for _ in range(5)]
    assert found == [2.0, 2.0, 3.0, 3.0, 3.0]
    assert asked == [3, 3, 3]

"""functools.lru_cache round functions that the frame makes: what is asked again, forgotten, kept apart."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from following import check

import torchdynamo

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


@pytest.mark.parametrize("fn", [recursive, with_a_limit, of_tensors, by_type, that_raise])
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

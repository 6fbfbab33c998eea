"""A frame whose code is swapped behaves as a call of the other code would, in every respect."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from hooking import Swapper, always, at_every_depth, swapped

from torchdynamo.eval_frame import GuardedCode, cache_entries, callback_active
from torchdynamo.hook.install import clear_all

calls_reach_the_hook = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="before 3.11 calling a generator function evaluates no frame"
)


def big(a: Any) -> Any:
    b = c = d = e = f = g = h = i = j = k = [a]
    return [a, *b, *c, *d, *e, *f, *g, *h, *i, *j, *k, (a, (a, (a, (a, (a, (a, (a, (a, a))))))))]


def small(a: Any) -> Any:
    return "small", a


def test_more_and_fewer_locals() -> None:
    value = object()
    assert swapped(small, big, value) == big(value)
    assert swapped(big, small, value) == ("small", value)


def test_closures() -> None:
    def make(x: int, y: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
        def one(a: int) -> Any:
            nonlocal x
            x += a
            return x, y

        def other(a: int) -> Any:
            nonlocal x
            temporary = x * a
            x = temporary
            return "other", x, y

        return one, other

    one, other = make(3, 5)
    with callback_active(Swapper((one, other))):
        assert one(2) == ("other", 6, 5)
        assert one(2) == ("other", 12, 5)
    assert one(1) == (13, 5)


def test_arguments_that_are_cells() -> None:
    def plain(a: int, *args: int, k: int = 1, **kw: int) -> Any:
        return a

    def with_cells(a: int, *args: int, k: int = 1, **kw: int) -> Any:
        def bump() -> int:
            nonlocal a
            a += k + len(args) + len(kw)
            return a

        return bump(), bump(), a

    assert swapped(plain, with_cells, 1, 2, 3, k=4, z=5) == (8, 15, 15)
    assert swapped(with_cells, plain, 1, 2, 3, k=4, z=5) == 1


def test_zero_argument_super() -> None:
    class Base:
        def name(self) -> str:
            return "base"

    class Derived(Base):
        def name(self) -> str:
            return super().name() + " derived"

        def other(self) -> str:
            keep = lambda: self  # noqa: E731  makes self a cell
            return super().name() + " other" + str(keep() is self)

    with callback_active(Swapper((Derived.name, Derived.other))):
        assert Derived().name() == "base otherTrue"
        assert Derived().name() == "base otherTrue"


def test_defaults_are_the_functions_own() -> None:
    def one(a: int, b: int = 10, *, c: int = 20) -> Any:
        return None

    def other(a: int, b: int = -1, *, c: int = -2) -> Any:
        return a, b, c

    assert swapped(one, other, 1) == (1, 10, 20)


def test_arguments_named_like_keywords() -> None:
    def one(a: int, /, **kw: int) -> Any: ...

    def other(a: int, /, **kw: int) -> Any:
        first, second, third, fourth, fifth, sixth = range(6)
        return a, kw, first + second + third + fourth + fifth + sixth

    with callback_active(Swapper((one, other))):
        at_every_depth(lambda: one(1, a=2, b=3), (1, {"a": 2, "b": 3}, 15))


def test_exceptions_and_their_lines() -> None:
    def one(a: int) -> Any: ...

    def other(a: int) -> Any:
        unused = 1
        del unused
        raise LookupError(a)

    with callback_active(Swapper((one, other))):
        for _ in range(2):
            with pytest.raises(LookupError) as caught:
                one(3)
            last = traceback.extract_tb(caught.value.__traceback__)[-1]
            assert last.name == "other"
            assert last.line == "raise LookupError(a)"


def raiser(a: int) -> int:
    raise KeyError(a)


def test_exceptions_pass_through_and_are_caught_inside() -> None:
    def one(a: int) -> Any: ...

    def other(a: int) -> Any:
        try:
            return raiser(a)
        except KeyError as error:
            return error.args
        finally:
            a += 1

    assert swapped(one, other, 1) == (1,)


@calls_reach_the_hook
def test_generators() -> None:
    def one(n: int) -> Iterator[int]:
        yield n

    def longer(n: int) -> Iterator[Any]:
        a, b, c, d, e, f = range(6)
        try:
            for i in range(n):
                got = yield i, a, b, c, d, e, f
                if got:
                    yield got
        finally:
            yield "closed"

    with callback_active(Swapper((one, longer))):
        for _ in range(2):
            generator = one(2)
            assert generator.__name__ == "one"
            assert next(generator) == (0, 0, 1, 2, 3, 4, 5)
            assert generator.send("sent") == "sent"  # type: ignore[attr-defined]
            assert list(generator) == [(1, 0, 1, 2, 3, 4, 5), "closed"]
            generator = one(2)
            next(generator)
            assert generator.throw(ValueError) == "closed"  # type: ignore[attr-defined]
    assert cache_entries(one)[0].hits == 4
    clear_all()

    with callback_active(Swapper((longer, one))):
        assert list(longer(7)) == [7]
        assert list(longer(7)) == [7]


async def leaf(n: int) -> int:
    await asyncio.sleep(0)
    return n


@calls_reach_the_hook
def test_coroutines() -> None:
    async def one(n: int) -> Any: ...

    async def other(n: int) -> Any:
        a, b, c = [await leaf(i) for i in range(3)]
        return n, a, b, c

    async def numbers(n: int) -> AsyncIterator[int]:
        yield n

    async def more_numbers(n: int) -> AsyncIterator[int]:
        for i in range(n):
            yield await leaf(i)

    async def main() -> Any:
        return await one(5), [i async for i in numbers(3)]

    with callback_active(Swapper((one, other), (numbers, more_numbers))):
        for _ in range(2):
            assert asyncio.run(main()) == ((5, 0, 1, 2), [0, 1, 2])


def test_generators_inside_swapped_frames() -> None:
    def one(n: int) -> Any: ...

    def other(n: int) -> Any:
        return sum(i for i in range(n)), [k + n for k in range(3)]

    assert swapped(one, other, 4) == (6, [4, 5, 6])


def test_frames_and_locals_seen_from_inside() -> None:
    def one(a: int) -> Any: ...

    def other(a: int) -> Any:
        b = 2
        frame = sys._getframe()
        return sorted(locals()), frame.f_code.co_name, sys._getframe(1).f_code.co_name, frame.f_locals["b"], b

    assert swapped(one, other, 1) == (["a", "b", "frame"], "other", "swapped", 2, 2)


def test_frame_objects_outlive_the_call() -> None:
    def one(a: Any) -> Any: ...

    def other(a: Any) -> Any:
        b = [a]
        return sys._getframe(), len(b)

    with callback_active(Swapper((one, other))):
        frame = one("x")[0]
        frame = one("y")[0]
    assert frame.f_locals == {"a": "y", "b": ["y"]}


def test_a_function_whose_code_is_replaced_in_the_middle() -> None:
    def one(a: int) -> Any:
        return "one", a

    def other(a: int) -> Any:
        return "other", a

    def third(a: int) -> Any:
        return "third", a

    def callback(frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        if frame.f_code is not before:
            return None
        one.__code__ = third.__code__
        return GuardedCode(other.__code__, always)

    before = one.__code__
    with callback_active(callback):
        assert one(1) == ("other", 1)
        assert one(1) == ("third", 1)

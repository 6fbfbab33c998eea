"""Deep stacks. The data stack is made of chunks, and a frame near the end of one has no room to grow."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import pytest
from hooking import Swapper, at_every_depth, nothing

from torchdynamo.eval_frame import cache_entries, callback_active


@pytest.mark.parametrize("args", [(), (1,), (1, 2, 3)])
@pytest.mark.parametrize("kwargs", [{}, {"k": 7}, {"k": 7, "z": 8}])
def test_frames_that_have_no_room_to_grow(args: tuple[int, ...], kwargs: dict[str, int]) -> None:
    cell = 5

    def one(a: int, b: int = 2, *rest: int, k: int = 3, **kw: int) -> Any:
        return cell

    def other(a: int, b: int = 2, *rest: int, k: int = 3, **kw: int) -> Any:
        c = d = e = f = g = h = i = j = cell
        return a, b, rest, k, kw, [c, d, e, f, g, h, i, j, sys._getframe(1).f_code.co_name]

    values = (0, *args)
    expected = other(*values, **kwargs)
    expected[-1][-1] = "<lambda>"
    with callback_active(Swapper((one, other))):
        at_every_depth(lambda: one(*values, **kwargs), expected)
    assert cache_entries(one)[0].hits == 151


def test_exceptions_and_generators_where_there_is_no_room() -> None:
    def one(a: int) -> Any: ...

    def other(a: int) -> Any:
        b = c = d = e = f = g = h = i = a
        raise ValueError([b, c, d, e, f, g, h, i])

    def call() -> Any:
        try:
            return one(1)
        except ValueError as error:
            return error.args

    with callback_active(Swapper((one, other))):
        at_every_depth(call, ([1] * 8,))


def plain_depth(n: int) -> int:
    return 0 if n == 0 else 1 + plain_depth(n - 1)


def bigger_depth(n: int) -> int:
    a = b = c = d = e = f = 1
    return 0 if n == 0 else (a + b + c + d + e + f) // 6 + plain_depth(n - 1)


def test_recursion_goes_as_deep_as_without_the_hook() -> None:
    room = 990 - sum(1 for _ in traceback.walk_stack(None))
    with callback_active(nothing):
        assert plain_depth(room) == room
    with callback_active(Swapper((plain_depth, bigger_depth))):
        assert plain_depth(room) == room
        assert plain_depth(room) == room


def test_endless_recursion_is_an_error_and_no_crash() -> None:
    def forever(n: int) -> int:
        return forever(n + 1)

    def forever_too(n: int) -> int:
        a = b = c = n
        return forever(a + b + c)

    with callback_active(Swapper((forever, forever_too))):
        for _ in range(3):
            with pytest.raises(RecursionError):
                forever(1)

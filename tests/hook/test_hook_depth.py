"""Deep stacks. The data stack is made of chunks, and a frame near the end of one has no room to grow."""

from __future__ import annotations

import ctypes
import sys
import threading
import traceback
from typing import Any

import pytest
from apart import in_a_fork
from hooking import Swapper, at_every_depth, nothing

from torchdynamo.eval_frame import cache_entries, callback_active
from torchdynamo.hook.install import CompiledGraph, hook_is_in


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


def deep_enough() -> None:
    """Lift the limit of the recursion, and take out the evaluator that torch.compile leaves in after an error."""
    sys.setrecursionlimit(10**6)
    python = ctypes.pythonapi
    python.PyInterpreterState_Get.restype = ctypes.c_void_p
    interpreter = ctypes.c_void_p(python.PyInterpreterState_Get())
    python._PyInterpreterState_SetEvalFrameFunc(interpreter, python._PyEval_EvalFrameDefault)


# Python 3.10 makes a call in C for each of its own, hook or not, and does not get so deep.
PYTHONS_OWN_DEPTH = pytest.mark.skipif(sys.version_info < (3, 11), reason="without a hook, 3.10 crashes here")


def two_deep_calls(callback: Any) -> tuple[int, int, int]:
    deep_enough()
    with callback_active(callback):
        return plain_depth(50_000), plain_depth(50_000), plain_depth(3)


@PYTHONS_OWN_DEPTH
@pytest.mark.parametrize("callback", [nothing, Swapper((plain_depth, bigger_depth))])
def test_a_raised_limit_is_as_good_as_without_the_hook(callback: Any) -> None:
    assert in_a_fork(lambda: two_deep_calls(callback)) == (50_000, 50_000, 3)


def beside_a_thread_with_a_hook() -> list[object]:
    deep_enough()
    inside, leave, found = threading.Event(), threading.Event(), []

    def other() -> None:
        with callback_active(Swapper((bigger_depth, plain_depth))):
            inside.set()
            leave.wait()
            found.append((bigger_depth(3), hook_is_in()))

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait()
    found += [hook_is_in(), plain_depth(50_000), hook_is_in()]
    leave.set()
    thread.join()
    return [*found, hook_is_in()]


@PYTHONS_OWN_DEPTH
def test_another_threads_hook_takes_no_stack_either() -> None:
    assert in_a_fork(beside_a_thread_with_a_hook) == [True, 50_000, True, (3, True), False]


def blocks_where_the_hook_is_out() -> tuple[Any, int]:
    deep_enough()

    def work() -> Any:
        try:
            yield plain_depth(40_000)
        finally:
            plain_depth(3)

    def at_the_bottom(n: int) -> Any:
        if n:
            return at_the_bottom(n - 1)
        with callback_active(nothing):
            return next(work()), plain_depth(10)

    with callback_active(Swapper((plain_depth, bigger_depth))):
        return at_the_bottom(20_000), plain_depth(2)


@PYTHONS_OWN_DEPTH
def test_blocks_that_begin_and_end_where_the_hook_is_out() -> None:
    assert in_a_fork(blocks_where_the_hook_is_out) == ((40_000, 10), 2)


def test_a_callback_has_as_many_levels_as_at_the_bottom() -> None:
    """However deep the program is: it would get errors that it has not without us."""
    found: list[int] = []

    def callback(frame: Any, cache_entry: Any, frame_state: Any) -> None:
        if frame.f_code is at_the_end.__code__:
            found.append(plain_depth(300))

    def at_the_end() -> int:
        return 5

    def descend(n: int) -> int:
        return at_the_end() if n == 0 else descend(n - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(sum(1 for _ in traceback.walk_stack(None)) + 400)
    try:
        with callback_active(callback):
            assert descend(380) == 5
    finally:
        sys.setrecursionlimit(limit)
    assert found == [300]


def test_levels_lent_to_a_graph_end() -> None:
    """Code of the program that a graph calls, and that calls the graph again, comes to an end as it would otherwise."""

    def again() -> Any:
        return graph()

    graph = CompiledGraph(again, "graph")
    with callback_active(nothing):
        for _ in range(3):
            with pytest.raises(RecursionError):
                graph()
            assert plain_depth(500) == 500


def asked_with_stacks_of(sizes: tuple[int, ...]) -> dict[int, bool]:
    """Return for stacks of so many KiB whether the callback was asked about a call."""
    asked: dict[int, bool] = {}

    def one() -> int:
        return 1

    def work(size: int) -> None:
        def callback(frame: Any, cache_entry: Any, frame_state: Any) -> None:
            asked[size] = asked[size] or frame.f_code is one.__code__

        asked[size] = False
        with callback_active(callback):
            one()

    for size in sizes:
        threading.stack_size(size * 1024)
        thread = threading.Thread(target=work, args=(size,))
        thread.start()
        thread.join()
    return asked


def test_a_thread_with_little_stack_asks_nobody() -> None:
    assert in_a_fork(lambda: asked_with_stacks_of((64, 1024))) == {64: False, 1024: True}

"""A callback belongs to its thread."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hooking import Swapper, always, nothing

from torchdynamo.eval_frame import GuardedCode, cache_entries, callback_active, set_eval_frame
from torchdynamo.hook.install import Compiled, CompiledGraph, clear_code, hook_is_in


def one(a: int) -> Any:
    return "one", a


def in_thread(call: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def test_another_thread_is_left_alone() -> None:
    def other(a: int) -> Any:
        return "other", a

    with callback_active(Swapper((one, other))):
        assert one(1) == ("other", 1)
        assert in_thread(lambda: one(1)) == ("one", 1)
        assert in_thread(lambda: set_eval_frame(None)) is None


def test_each_thread_has_its_own_callback_and_entries() -> None:
    codes = [(lambda a, n=n: (n, a)).__code__ for n in range(8)]
    start = threading.Barrier(8)

    def work(n: int) -> None:
        def mine(a: int, n: int = n) -> Any:
            return None

        def callback(frame: Any, cache_entry: Any, frame_state: Any) -> Any:
            if frame.f_code is not mine.__code__:
                return None
            return GuardedCode(codes[n], lambda f_locals: f_locals["n"] == n)

        compiled = Compiled(mine, callback)
        start.wait()
        for a in range(2000):
            assert compiled(a) == (n, a)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, n) for n in range(8)]:
            done.result()
    assert not hook_is_in()


def test_threads_share_entries_while_one_clears_them() -> None:
    def other(a: int) -> Any:
        return "other", a

    stop = threading.Event()

    def clear() -> None:
        while not stop.is_set():
            clear_code(one.__code__)

    def work() -> None:
        compiled = Compiled(one, Swapper((one, other)))
        for a in range(3000):
            assert compiled(a) in (("other", a), ("one", a))

    clearer = threading.Thread(target=clear)
    clearer.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(work) for _ in range(4)]:
                done.result()
    finally:
        stop.set()
        clearer.join()


def test_a_thread_that_ends_with_a_callback_on_gives_it_up() -> None:
    class Callback:
        def __call__(self, *args: Any) -> None: ...

    def work() -> weakref.ref[Any]:
        callback = Callback()
        set_eval_frame(callback)
        return weakref.ref(callback)

    dead: list[weakref.ref[Any]] = []
    thread = threading.Thread(target=lambda: dead.append(work()))
    thread.start()
    thread.join()
    gc.collect()
    assert dead[0]() is None
    assert not hook_is_in()


def test_a_graph_in_one_thread_leaves_the_hook_in_for_another() -> None:
    inside, leave = threading.Event(), threading.Event()

    def wait() -> bool:
        inside.set()
        leave.wait()
        return hook_is_in()

    with callback_active(nothing), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(Compiled(CompiledGraph(wait, "graph"), nothing))
        inside.wait()
        assert hook_is_in()
        assert CompiledGraph(hook_is_in, "graph")() is False
        leave.set()
        assert waiting.result() is True


def test_a_block_is_left_where_it_was_entered() -> None:
    block = callback_active(nothing)
    block.__enter__()
    try:
        assert isinstance(in_thread(lambda: attempt(block)), RuntimeError)
    finally:
        block.__exit__(None, None, None)


def attempt(block: callback_active) -> Exception | None:
    try:
        block.__exit__(None, None, None)
    except RuntimeError as error:
        return error
    return None


def test_many_entries_in_many_threads() -> None:
    def target(a: int) -> Any:
        return None

    def callback(frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        if frame.f_code is not target.__code__:
            return None
        a = frame.f_locals["a"]
        return GuardedCode((lambda a: ("entry", a)).__code__, lambda f_locals: f_locals["a"] == a)

    def work() -> None:
        compiled = Compiled(target, callback)
        for turn in range(300):
            assert compiled(turn % 7) == ("entry", turn % 7)

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(work) for _ in range(6)]:
            done.result()
    assert len(cache_entries(target)) >= 7
    assert always({})

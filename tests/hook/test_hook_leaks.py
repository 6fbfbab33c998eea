"""Ten thousand calls leave nothing behind, and what dies takes its entries along."""

from __future__ import annotations

import gc
import resource
import sys
import weakref
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hooking import always

from torchdynamo.eval_frame import GuardedCode, cache_entries, callback_active
from torchdynamo.hook.install import Compiled, CompiledGraph, Entry, clear_all, drop_owner, skip_code

CALLS = 10_000
LIMIT = 40_000  # less than one small object per call


def one(a: Any, *rest: Any, k: Any = None, **kw: Any) -> Any:
    return a


def other(a: Any, *rest: Any, k: Any = None, **kw: Any) -> Any:
    b = c = d = [a, k]
    return [b, c, d]


def raiser(a: Any, *rest: Any, k: Any = None, **kw: Any) -> Any:
    raise LookupError(a)


def resident() -> int:
    """Bytes of memory in use by this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def grows(call: Callable[[], Any]) -> int:
    """Bytes that ten thousand calls keep: the least of three goes, as allocators take their time to settle."""
    gc.collect()
    sizes = [resident()]
    for _ in range(3):
        for _ in range(CALLS):
            call()
        gc.collect()
        sizes.append(resident())
    return min(after - before for before, after in pairwise(sizes))


def swap(old: Any, new: Any) -> Callable[..., Any]:
    """Like Swapper, without its memory of what it was asked."""
    code = old.__code__
    return lambda frame, *_: GuardedCode(new.__code__, always) if frame.f_code is code else None


def at_depth(n: int, call: Callable[[], Any]) -> Any:
    return call() if n == 0 else at_depth(n - 1, call)


@pytest.mark.parametrize("replacement", [one, other, raiser])
def test_calls_that_hit(replacement: Any) -> None:
    value, result = object(), None

    def call() -> Any:
        try:
            return one(value, value, k=value, z=value)
        except LookupError:
            return None

    objects = (value, one.__code__, replacement.__code__, one, None)
    with callback_active(swap(one, replacement)):
        result = call()
        del result
        before = [sys.getrefcount(each) for each in objects[:-1]]
        grown = grows(call)
        after = [sys.getrefcount(each) for each in objects[:-1]]
    assert after == before
    assert grown < LIMIT
    assert cache_entries(one)[0].hits > CALLS


def test_calls_that_hit_where_there_is_no_room_to_grow() -> None:
    value = object()
    with callback_active(swap(one, other)):
        one(value)
        before = sys.getrefcount(value), sys.getrefcount(one.__code__), sys.getrefcount(other.__code__)
        for depth in range(100):
            for _ in range(20):
                at_depth(depth, lambda: one(value, value, k=value, z=value))
        after = sys.getrefcount(value), sys.getrefcount(one.__code__), sys.getrefcount(other.__code__)
    assert after == before


@pytest.mark.long
def test_calls_that_ask_and_checks_that_fail() -> None:
    def asks(frame: Any, cache_entry: Any, frame_state: Any) -> None:
        assert frame.f_locals is not None
        assert frame.closure is not None

    value = object()

    def call() -> None:
        one(value)

    with callback_active(asks):
        before = sys.getrefcount(value)
        assert grows(call) < LIMIT
        assert sys.getrefcount(value) == before
    with callback_active(swap(one, other)):
        one(value)
    refuse = Entry(other.__code__, lambda f_locals: False)
    with callback_active(lambda frame, *_: refuse if frame.f_code is one.__code__ else None):
        assert grows(call) < LIMIT
        assert sys.getrefcount(value) == before


@pytest.mark.long
def test_answers_that_are_errors() -> None:
    def call() -> None:
        try:
            one(1)
        except (ValueError, TypeError):
            pass

    wrong_code = Entry(at_depth.__code__, always)
    error = ValueError()
    for answer in (wrong_code, error, 3):
        with callback_active(lambda frame, *_, answer=answer: answer if frame.f_code is one.__code__ else None):
            assert grows(call) < LIMIT
    assert sys.getrefcount(wrong_code) < 6
    assert sys.getrefcount(error) < 6


def test_callables() -> None:
    value = object()
    graph = CompiledGraph(lambda *args: args, "graph", splat=True)
    failing = CompiledGraph(raiser, "graph", on_error=lambda error, args: args)
    compiled = Compiled(graph, lambda *_: None)
    tail = (value,) * 100

    def call() -> None:
        compiled(value, tail)
        failing(value, value)
        with callback_active(lambda *_: None):
            graph(value, tail)

    call()
    before = sys.getrefcount(value), sys.getrefcount(graph), sys.getrefcount(None)
    assert grows(call) < LIMIT
    assert (sys.getrefcount(value), sys.getrefcount(graph)) == before[:2]


def test_entries_die_with_the_code() -> None:
    class Info: ...

    def make() -> tuple[weakref.ref[Info], weakref.ref[Any]]:
        names: dict[str, Any] = {}
        exec("def short_lived(a): return a\ndef replacement(a): return [a]", names)
        fn, info = names["short_lived"], Info()
        entry = Entry(names["replacement"].__code__, always, info=info)
        with callback_active(lambda frame, *_: entry if frame.f_code is fn.__code__ else None):
            assert fn(1) == [1]
        skip_code(fn.__code__, Info())
        return weakref.ref(info), weakref.ref(fn.__code__)

    for dead in make():
        gc.collect()
        assert dead() is None


def test_entries_die_when_dropped() -> None:
    class Info: ...

    class Owner:
        owner_id = 3

        def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
            return Entry(other.__code__, always, owner_id=3, info=Info()) if frame.f_code is one.__code__ else None

    for drop in (clear_all, lambda: drop_owner(3)):
        with callback_active(Owner()):
            one(1)
        dead = weakref.ref(cache_entries(one)[0].info)
        assert dead() is not None
        drop()
        assert dead() is None


def test_the_finalizer_of_a_dropped_entry_may_use_the_cache() -> None:
    class Info:
        def __del__(self) -> None:
            clear_all()
            drop_owner(0)
            skip_code(one.__code__, "from a finalizer")
            events.append("gone")

    events: list[str] = []
    functions = []
    for number in range(20):
        names: dict[str, Any] = {}
        exec(f"def fn(a): return {number}", names)
        functions.append(names["fn"])
    codes = {fn.__code__: fn for fn in functions}

    def callback(frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        return Entry(frame.f_code, always, info=Info()) if frame.f_code in codes else None

    for drop in (clear_all, lambda: drop_owner(0)):
        with callback_active(callback):
            for fn in functions:
                fn(1)
        drop()
        assert all(cache_entries(fn) == [] for fn in functions)
    assert len(events) == 40


def test_an_entry_that_is_used_again_after_being_dropped() -> None:
    entry = GuardedCode(other.__code__, always)
    with callback_active(lambda frame, *_: entry if frame.f_code is one.__code__ else None):
        one(1)
        clear_all()
        assert not entry.live
        assert one(1) == [[1, None]] * 3
    assert entry.live
    assert cache_entries(one) == [entry]

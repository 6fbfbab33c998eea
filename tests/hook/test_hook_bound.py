"""A guard program asked by the hook, and the tuple it leaves in the local `__bound` of the code that runs."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest
from hooking import at_every_depth

from torchdynamo.eval_frame import cache_entries, callback_active
from torchdynamo.hook.install import Entry

native = pytest.importorskip("torchdynamo._native")


def one(a: Any, b: int = 2, *, k: int = 3) -> Any:
    return a


def make_other() -> Any:
    """A function whose local __bound nobody sets: the hook will."""

    def other(a: Any, b: int = 2, *, k: int = 3) -> Any:
        if k == 0:
            __bound: Any = ()  # makes it a local
        c = d = e = f = g = h = a
        return __bound, a, b, k, [c, d, e, f, g, h][0]

    return other


def program(bound: tuple[int, ...] = (1, 0)) -> Any:
    nodes = (("local", -1, "a"), ("item", 0, 0))
    return native.GuardProgram(one.__code__, nodes, ((0, "type", list), (0, "length", 2)), bound)


def entry_callback(entry: Entry) -> Any:
    return lambda frame, *_: entry if frame.f_code is one.__code__ and not entry.live else None


@pytest.fixture
def entry() -> Entry:
    return Entry(make_other().__code__, program())


def test_what_is_bound_reaches_the_code(entry: Entry) -> None:
    first = object()
    value = [first, None]
    with callback_active(entry_callback(entry)):
        for k in (3, 4):
            bound, *rest = one(value, k=k)
            assert bound[0] is first
            assert bound[1] is value
            assert rest == [value, 2, k, value]
        assert one([1, 2, 3]) == [1, 2, 3]
        assert one((1, 2)) == (1, 2)
    assert cache_entries(one) == [entry]
    assert entry.hits == 2


def test_what_is_bound_reaches_frames_that_have_no_room_to_grow(entry: Entry) -> None:
    value = [object(), None]
    expected = (value[0], value), value, 2, 3, value
    with callback_active(entry_callback(entry)):
        at_every_depth(lambda: one(value), expected)


def test_code_without_the_local_needs_nothing_bound() -> None:
    def plain(a: Any, b: int = 2, *, k: int = 3) -> Any:
        return "plain", a

    with callback_active(entry_callback(Entry(plain.__code__, program()))):
        assert one([1, 2]) == ("plain", [1, 2])


def test_nothing_is_kept(entry: Entry) -> None:
    value = [object(), None]

    def call() -> None:
        one(value)
        at_every_depth(lambda: one(value)[1], value, depth=30)

    with callback_active(entry_callback(entry)):
        call()
        gc.collect()  # at_every_depth recurses through a cell: a cycle
        before = sys.getrefcount(value), sys.getrefcount(value[0])
        for _ in range(100):
            call()
        gc.collect()
        assert (sys.getrefcount(value), sys.getrefcount(value[0])) == before

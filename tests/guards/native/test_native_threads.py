"""Programs that several threads run, while others change, and let go of, what they read."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import pytest

from torchdynamo import _native
from torchdynamo.eval_frame import callback_active
from torchdynamo.hook.install import clear_code

THREADS = 3
SECONDS = 0.4


class Box:
    def __init__(self) -> None:
        self.pair = ("pair", object())


def frame(x: Any) -> Any:
    return "written"


def other(x: Any, __bound: Any = None) -> Any:
    return "ran"


def of_attribute() -> tuple[Any, Any, Callable[[], None]]:
    """An attribute, held by nobody else, of an object in a list of an object's dict."""
    box = Box()
    box.inner = [Box()]  # type: ignore[attr-defined]
    nodes = [
        ("local", -1, "x"),
        ("dict", 0, None),
        ("key", 1, "inner"),
        ("item", 2, 0),
        ("dict", 3, None),
        ("key", 4, "pair"),
    ]
    checks = [(0, "type", Box), (2, "type", list), (3, "type", Box), (5, "type", tuple), (5, "length", 2)]

    def change() -> None:
        box.inner = [Box()]  # type: ignore[attr-defined]
        box.inner.append(object())  # type: ignore[attr-defined]
        box.inner[0].pair = ("pair", object())  # type: ignore[attr-defined]

    return _native.GuardProgram(frame.__code__, tuple(nodes), tuple(checks), (5,)), box, change


def of_dict() -> tuple[Any, Any, Callable[[], None]]:
    """A value of a dict that grows and shrinks."""
    box: dict[Any, Any] = {"pair": ("pair", object())}
    nodes = [("local", -1, "x"), ("key", 0, "pair")]
    checks = [(0, "type", dict), (1, "type", tuple), (1, "length", 2)]

    def change() -> None:
        box.update({str(n): object() for n in range(30)})
        box["pair"] = ("pair", object())
        for n in range(30):
            del box[str(n)]

    return _native.GuardProgram(frame.__code__, tuple(nodes), tuple(checks), (1,)), box, change


def of_class() -> tuple[Any, Any, Callable[[], None]]:
    """An attribute of a class, whose version changes as it does."""

    class Made:
        pair: Any = ("pair", object())

    nodes = [("local", -1, "x"), ("type", 0, None), ("class_attr", 1, "pair")]
    checks = [(1, "is", Made), (2, "type", tuple), (2, "length", 2)]

    def change() -> None:
        Made.pair = ("pair", object())

    return _native.GuardProgram(frame.__code__, tuple(nodes), tuple(checks), (2,)), Made(), change


WAYS = (of_attribute, of_dict, of_class)


@contextmanager
def working(*work: Callable[[], None]) -> Iterator[list[BaseException]]:
    """Have threads do these over and over, for a time."""
    errors: list[BaseException] = []
    end = time.monotonic() + SECONDS

    def over_and_over(each: Callable[[], None]) -> None:
        try:
            while time.monotonic() < end and not errors:
                each()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=over_and_over, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    yield errors
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("way", WAYS)
def test_what_is_read_changes(way: Callable[[], Any]) -> None:
    program, box, change = way()
    held: list[int] = []

    def ask() -> None:
        bound = program.fetch({"x": box}, globals(), {})
        if bound is not None:
            assert len(bound) == 1 and bound[0][0] == "pair" and type(bound[0][1]) is object
            held.append(1)

    with working(*[ask] * THREADS, change, lambda: (gc.collect(), time.sleep(0.02))[1]) as errors:
        pass
    assert not errors
    assert held


@pytest.mark.parametrize("way", WAYS)
def test_entries_come_and_go(way: Callable[[], Any]) -> None:
    program, box, change = way()
    target = FunctionType(frame.__code__.replace(), globals())
    code = other.__code__.replace(co_argcount=1, co_varnames=("x", "__bound"))
    seen: set[str] = set()

    def callback(f: Any, entry: Any, state: Any) -> Any:
        return _native.Entry(code, program) if f.f_code is target.__code__ else None

    def call() -> None:
        with callback_active(callback):
            for _ in range(20):
                seen.add(target(box))

    def let_go() -> None:
        clear_code(target.__code__)
        time.sleep(0.001)

    with working(*[call] * THREADS, change, let_go) as errors:
        pass
    assert not errors
    assert seen <= {"written", "ran"} and "ran" in seen

"""Guards that ask code which may do anything: run the same program again, in any thread, or undo what was seen."""

from __future__ import annotations

import builtins
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from torchdynamo import _native
from torchdynamo.eval_frame import callback_active
from torchdynamo.hook.install import clear_code

THREADS = 8


class Thing:
    """Something to be fetched."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Says:
    """What is in a list, whose text is asked for: a method of a type in C, which runs this in Python."""

    def __init__(self, does: Callable[[], Any] = lambda: None) -> None:
        self.does = does

    def __repr__(self) -> str:
        self.does()
        return "says"

    @property
    def __isabstractmethod__(self) -> bool:
        self.does()
        return False


def frame(x: Any, asked: Any) -> None:
    """Whose frame is guarded."""


def lists(does: Callable[[], Any]) -> Any:
    return [Says(does)]


def properties(does: Callable[[], Any]) -> Any:
    return property(Says(does))  # type: ignore[arg-type]


# How other code is asked: the object, the way to the answer, the answer.
WAYS: dict[str, tuple[Callable[[Callable[[], Any]], Any], list[tuple[str, int, Any]], Any]] = {
    "method": (lists, [("method", 0, "__repr__")], "[says]"),
    "getter": (properties, [("attr", 0, "__isabstractmethod__")], False),
    "below": (lists, [("method", 0, "__repr__"), ("type", 1, None)], None),
}


def make(way: str) -> Any:
    """A program that asks, and then gives `x.box["value"]` and a member of it."""
    _, nodes, answer = WAYS[way]
    asked = ("local", -1, "asked")
    at = len(nodes) + 1
    rest = [
        ("local", -1, "x"),
        ("dict", at, None),
        ("key", at + 1, "box"),
        ("key", at + 2, "value"),
        ("item", at + 3, 0),
    ]
    checks = [(1, "equal", answer)] if answer is not None else [(2, "is", str)]
    checks += [(at, "type", Thing), (at + 2, "length", 2), (at + 3, "type", tuple)]
    return _native.GuardProgram(frame.__code__, (asked, *nodes, *rest), tuple(checks), (at + 3, at + 4))


def thing(number: int) -> Thing:
    return Thing(box={"value": (Thing(number=number), number), "other": 1})


def ask(program: Any, x: Any, asked: Any) -> Any:
    return program.fetch({"x": x, "asked": asked}, globals(), vars(builtins))


@pytest.fixture(params=sorted(WAYS))
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield request.param
    sys.setswitchinterval(old)


def is_of(found: Any, x: Thing) -> bool:
    """Whether that was fetched from there."""
    value = x.box["value"]  # type: ignore[attr-defined]
    return found is not None and found[0] is value and found[1] is value[0]


def test_it_holds_and_gives(way: str) -> None:
    program, x = make(way), thing(1)
    for _ in range(10):
        assert is_of(ask(program, x, WAYS[way][0](lambda: None)), x)
    x.box["more"] = 2  # type: ignore[attr-defined]
    assert ask(program, x, WAYS[way][0](lambda: None)) is None
    assert ask(program, x, 3) is None


def test_entered_again_by_what_it_asks(way: str) -> None:
    program, told = make(way), WAYS[way][0]
    inner, outer = thing(1), thing(2)
    for depth in (1, 5):

        def again(left: int = depth) -> None:
            if left:
                assert is_of(ask(program, inner, told(lambda: again(left - 1))), inner)

        for _ in range(10):
            assert is_of(ask(program, outer, told(again)), outer)


def test_entered_by_other_threads(way: str) -> None:
    program, told = make(way), WAYS[way][0]

    def work(number: int) -> bool:
        x = thing(number)
        return all(is_of(ask(program, x, told(lambda: time.sleep(0))), x) for _ in range(100))

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(work, range(THREADS)))


UNDOINGS: dict[str, Callable[[Thing], Any]] = {
    "the dict is emptied": lambda x: x.box.clear(),  # type: ignore[attr-defined]
    "the object has other attributes": lambda x: setattr(x, "__dict__", {}),
    "another value": lambda x: x.box.update(value=(Thing(), 3)),  # type: ignore[attr-defined]
    "another dict": lambda x: setattr(x, "box", {"value": (Thing(), 4), "other": 2}),
    "another class": lambda x: setattr(x, "__class__", type("Other", (Thing,), {})),
}


@pytest.mark.parametrize("undoing", sorted(UNDOINGS))
def test_what_was_seen_is_undone_meanwhile(way: str, undoing: str) -> None:
    """What is given is what is there when all is told, or nothing."""
    program, told = make(way), WAYS[way][0]

    for warm in (0, 1, 5):
        x = thing(1)
        for _ in range(warm):
            ask(program, x, told(lambda: None))

        def undo(x: Thing = x) -> None:
            UNDOINGS[undoing](x)
            gc.collect(0)

        found = ask(program, x, told(undo))
        assert is_of(found, x) if undoing.startswith("another ") and undoing != "another class" else found is None


def test_what_is_asked_goes_meanwhile(way: str) -> None:
    """The object that is asked, and the arguments, are let go of by all but the run."""
    program, told = make(way), WAYS[way][0]
    arguments: dict[str, Any] = {}

    def undo() -> None:
        arguments.clear()
        gc.collect(0)

    for _ in range(5):
        x = thing(1)
        arguments.update(x=x, asked=told(undo))
        assert is_of(program.fetch(arguments, globals(), vars(builtins)), x)


def test_errors_of_what_is_asked(way: str) -> None:
    program, told = make(way), WAYS[way][0]

    def fail(error: BaseException) -> None:
        raise error

    for _ in range(3):
        assert ask(program, thing(1), told(lambda: fail(ValueError("no")))) is None
        with pytest.raises(KeyboardInterrupt):
            ask(program, thing(1), told(lambda: fail(KeyboardInterrupt())))


def test_nothing_is_left_behind(way: str) -> None:
    program, told = make(way), WAYS[way][0]
    x, asked = thing(1), told(lambda: None)
    ask(program, x, asked)
    before = [sys.getrefcount(each) for each in (x, asked, x.box, x.box["value"])]  # type: ignore[attr-defined]
    for _ in range(50):
        ask(program, x, asked)
        ask(program, x, told(lambda: gc.collect(0)))
    assert [sys.getrefcount(each) for each in (x, asked, x.box, x.box["value"])] == before  # type: ignore[attr-defined]


def test_entries_go_while_their_guards_run() -> None:
    """The code's entries are dropped, and others made, by what the guards of one ask."""

    def target(x: Any, asked: Any) -> Any:
        return "plain"

    def other(x: Any, asked: Any) -> Any:
        return "entry"

    nodes = (("local", -1, "asked"), ("method", 0, "__repr__"), ("local", -1, "x"))
    made = []

    def callback(frame: Any, entry: Any, notes: Any) -> Any:
        if frame.f_code is not target.__code__:
            return None
        checks = ((1, "equal", "[says]"), (2, "equal", frame.f_locals["x"]))
        program = _native.GuardProgram(target.__code__, nodes, checks, ())
        made.append(_native.Entry(other.__code__, program))
        return made[-1]

    def drop() -> None:
        clear_code(target.__code__)
        gc.collect(0)

    with callback_active(callback):
        for turn in range(200):
            asked = lists(drop if turn % 5 == 0 else lambda: time.sleep(0))
            assert target(turn % 7, asked) in ("plain", "entry")
    assert len(made) > 7


def test_entries_of_one_function_in_many_threads() -> None:
    def target(x: Any, asked: Any) -> Any:
        return "plain"

    def other(x: Any, asked: Any) -> Any:
        return x

    nodes = (("local", -1, "asked"), ("method", 0, "__repr__"), ("local", -1, "x"))
    lock = threading.Lock()

    def callback(frame: Any, entry: Any, notes: Any) -> Any:
        if frame.f_code is not target.__code__:
            return None
        checks = ((1, "equal", "[says]"), (2, "equal", frame.f_locals["x"]))
        with lock:
            return _native.Entry(other.__code__, _native.GuardProgram(target.__code__, nodes, checks, ()))

    def work(number: int) -> bool:
        asked = lists(lambda: time.sleep(0))
        with callback_active(callback):
            return all(target((number + turn) % 5, asked) == (number + turn) % 5 for turn in range(200))

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(work, range(THREADS)))

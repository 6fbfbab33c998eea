"""Whoever looks at lines sees the code that was written; profilers see the code that runs. Neither changes a result."""

from __future__ import annotations

import contextlib
import cProfile
import faulthandler
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hooking import Swapper, always

from torchdynamo.eval_frame import callback_active

SEEN: list[str] = []


def one(a: int) -> Any:
    return a


def other(a: int) -> Any:
    total = 0
    for i in range(a):
        total += i
    return "other", total


@contextlib.contextmanager
def tracing(opcodes: bool = False) -> Iterator[None]:
    def tracer(frame: Any, event: str, arg: Any) -> Any:
        frame.f_trace_opcodes = opcodes
        SEEN.append(f"{event} {frame.f_code.co_name}")
        return tracer

    prior = sys.gettrace()
    sys.settrace(tracer)
    try:
        yield
    finally:
        sys.settrace(prior)


@contextlib.contextmanager
def profiling() -> Iterator[None]:
    prior = sys.getprofile()
    sys.setprofile(lambda frame, event, arg: SEEN.append(f"{event} {frame.f_code.co_name}"))
    try:
        yield
    finally:
        sys.setprofile(prior)


@contextlib.contextmanager
def profiling_in_c() -> Iterator[None]:
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
    SEEN.extend(f"call {entry.code.co_name}" for entry in profile.getstats() if hasattr(entry.code, "co_name"))


@contextlib.contextmanager
def monitoring(tool: int, events: str, of: Any = None) -> Iterator[None]:
    """Watch events of sys.monitoring, of all code or of one function, as one of its tools."""
    here = sys.monitoring  # type: ignore[attr-defined]
    wanted = sum(getattr(here.events, name) for name in events.split())
    here.use_tool_id(tool, "test")
    for name in events.split():
        here.register_callback(
            tool, getattr(here.events, name), lambda code, *rest, name=name: SEEN.append(f"{name} {code.co_name}")
        )
    try:
        here.set_local_events(tool, of.__code__, wanted) if of else here.set_events(tool, wanted)
        yield
    finally:
        here.set_local_events(tool, of.__code__, 0) if of else here.set_events(tool, 0)
        here.free_tool_id(tool)


@contextlib.contextmanager
def counting_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


@contextlib.contextmanager
def dumping() -> Iterator[None]:
    """A thread of faulthandler's reads all stacks, again and again, while nobody holds still."""
    with open("/dev/null", "w") as nowhere:
        faulthandler.dump_traceback_later(0.001, repeat=True, file=nowhere)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


WATCHES_LINES: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "sys.settrace": tracing,
    "sys.settrace, opcodes": lambda: tracing(opcodes=True),
}
LOOKS_ON: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "sys.setprofile": profiling,
    "cProfile": profiling_in_c,
    "tracemalloc": counting_memory,
    "faulthandler": dumping,
}
if sys.version_info >= (3, 12):
    DEBUGGER, COVERAGE, PROFILER, UNNAMED = 0, 1, 2, 3
    WATCHES_LINES |= {
        "monitoring, a debugger": lambda: monitoring(DEBUGGER, "PY_START"),
        "monitoring, coverage": lambda: monitoring(COVERAGE, "PY_START"),
        "monitoring, lines": lambda: monitoring(UNNAMED, "LINE"),
        "monitoring, branches": lambda: monitoring(PROFILER, "BRANCH"),
        "monitoring, instructions": lambda: monitoring(UNNAMED, "INSTRUCTION"),
        "monitoring, lines of the function": lambda: monitoring(UNNAMED, "LINE", one),
        "monitoring, coverage of the function": lambda: monitoring(COVERAGE, "PY_START", one),
    }
    LOOKS_ON |= {
        "monitoring, a profiler": lambda: monitoring(PROFILER, "PY_START PY_RETURN"),
        "monitoring, calls": lambda: monitoring(UNNAMED, "PY_START CALL"),
        "monitoring, another function": lambda: monitoring(COVERAGE, "PY_START", other),
    }
AS_WRITTEN, REPLACED = 3, ("other", 3)
TABLE = [
    *((name, watching, AS_WRITTEN) for name, watching in WATCHES_LINES.items()),
    *((name, watching, REPLACED) for name, watching in LOOKS_ON.items()),
]


@pytest.mark.parametrize(("watching", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
class TestWatching:
    """Each way to look on, begun at each moment."""

    def test_begun_before_there_is_code(self, watching: Any, expected: Any) -> None:
        with callback_active(Swapper((one, other))):
            with watching():
                assert one(3) == one(3) == expected
            assert one(3) == REPLACED

    def test_begun_outside(self, watching: Any, expected: Any) -> None:
        with watching(), callback_active(Swapper((one, other))):
            assert one(3) == one(3) == expected

    def test_begun_when_there_is_code(self, watching: Any, expected: Any) -> None:
        with callback_active(Swapper((one, other))):
            assert one(3) == REPLACED
            with watching():
                assert one(3) == one(3) == expected
            assert one(3) == REPLACED

    def test_sees_what_it_sees_without_the_hook(self, watching: Any, expected: Any) -> None:
        alone = one if expected == AS_WRITTEN else other
        seen = []
        for function, callback in ((alone, None), (one, Swapper((one, other)))):
            with callback_active(callback):
                one(3)
                SEEN.clear()
                with watching():
                    assert function(3) == expected
            seen.append([each for each in SEEN if each.split()[1] in ("one", "other")])
        assert seen[0] == seen[1]


def test_setprofile_sees_calls_and_returns_in_pairs() -> None:
    with callback_active(Swapper((one, other))):
        one(1)
        SEEN.clear()
        with profiling():
            one(1)
            one(2)
    assert [each for each in SEEN if each.endswith(" other")] == ["call other", "return other"] * 2
    assert not [each for each in SEEN if each.endswith(" one")]


def test_checks_run_untouched_under_a_profiler() -> None:
    with profiling(), callback_active(Swapper((one, other), check=lambda f_locals: always(f_locals))):
        assert one(1) == one(1) == ("other", 0)

"""Tracers, profilers and monitoring see the code that runs, and change no result."""

from __future__ import annotations

import cProfile
import sys
from typing import Any

import pytest
from hooking import Swapper, always

from torchdynamo.eval_frame import callback_active


def one(a: int) -> Any:
    return a


def other(a: int) -> Any:
    total = 0
    for i in range(a):
        total += i
    return "other", total


def traced_lines(frame: Any, event: str, found: list[tuple[str, str, int]]) -> Any:
    if frame.f_code in (one.__code__, other.__code__):
        found.append((event, frame.f_code.co_name, frame.f_lineno - frame.f_code.co_firstlineno))
    return lambda frame, event, arg: traced_lines(frame, event, found)


def test_settrace_sees_every_line() -> None:
    found: list[tuple[str, str, int]] = []
    expected: list[tuple[str, str, int]] = []
    prior = sys.gettrace()
    sys.settrace(lambda frame, event, arg: traced_lines(frame, event, expected))
    try:
        other(2)
        with callback_active(Swapper((one, other))):
            assert one(2) == ("other", 1)
        found.clear()
        sys.settrace(lambda frame, event, arg: traced_lines(frame, event, found))
        with callback_active(Swapper((one, other))):
            assert one(2) == ("other", 1)
    finally:
        sys.settrace(prior)
    assert found == expected[: len(found)]
    assert len(found) > 5


def test_what_is_set_inside_sees_the_programs_own_frames() -> None:
    found: list[tuple[str, str, int]] = []
    prior = sys.gettrace()
    with callback_active(Swapper((one, other))):
        assert one(2) == ("other", 1)
        sys.settrace(lambda frame, event, arg: traced_lines(frame, event, found))
        try:
            assert one(2) == 2
        finally:
            sys.settrace(prior)
        assert one(2) == ("other", 1)
    assert [event for event, *_ in found] == ["call", "line", "return"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_tracing_switched_on_before_and_after_caching(when: str) -> None:
    events = []

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        frame.f_trace_opcodes = True
        events.append(event)
        return tracer

    prior = sys.gettrace()
    if when == "after":
        with callback_active(Swapper((one, other))):
            one(3)
    sys.settrace(tracer)
    try:
        with callback_active(Swapper((one, other))):
            assert one(3) == ("other", 3)
            assert one(3) == ("other", 3)
    finally:
        sys.settrace(prior)
    assert events.count("line") >= 12  # whether opcodes are told from the first call on differs between 3.12.x


def test_setprofile_sees_calls_and_returns_in_pairs() -> None:
    events: list[tuple[str, str]] = []

    def profiler(frame: Any, event: str, arg: Any) -> None:
        if frame.f_code in (one.__code__, other.__code__):
            events.append((event, frame.f_code.co_name))

    prior = sys.getprofile()
    with callback_active(Swapper((one, other))):
        one(1)
        sys.setprofile(profiler)
        try:
            one(1)
            one(2)
        finally:
            sys.setprofile(prior)
    assert events == [("call", "other"), ("return", "other")] * 2


def test_cprofile() -> None:
    profile = cProfile.Profile()
    with callback_active(Swapper((one, other))):
        profile.enable()
        for _ in range(10):
            assert one(3) == ("other", 3)
        profile.disable()
    calls = {entry.code.co_name: entry.callcount for entry in profile.getstats() if hasattr(entry.code, "co_name")}
    assert calls["other"] == 10
    assert "one" not in calls


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_monitoring_switched_on_after_caching() -> None:
    monitoring = sys.monitoring  # type: ignore[attr-defined]
    events: list[str] = []
    monitoring.use_tool_id(3, "test")
    try:
        with callback_active(Swapper((one, other))):
            one(3)
            monitoring.register_callback(3, monitoring.events.PY_START, lambda code, _: events.append(code.co_name))
            monitoring.register_callback(3, monitoring.events.LINE, lambda code, line: events.append(code.co_name))
            monitoring.set_events(3, monitoring.events.PY_START | monitoring.events.LINE)
            assert one(3) == ("other", 3)
            monitoring.set_events(3, 0)
    finally:
        monitoring.free_tool_id(3)
    assert events.count("other") > 5
    assert "one" not in events


def test_checks_run_untouched_under_a_tracer() -> None:
    prior = sys.gettrace()
    sys.settrace(lambda *args: None)
    try:
        with callback_active(Swapper((one, other), check=lambda f_locals: always(f_locals))):
            assert one(1) == one(1) == ("other", 0)
    finally:
        sys.settrace(prior)

"""What tracebacks show: frames that never ran, and a function that runs as it was written in its entry's place."""

from __future__ import annotations

import dis
import gc
import sys
import traceback
import types
import weakref
from typing import Any

import pytest
from hooking import at_every_depth, nothing

from torchdynamo._native import AsWritten, called_last, frame_at
from torchdynamo.bytecode import versions
from torchdynamo.eval_frame import GuardedCode, callback_active
from torchdynamo.hook.install import Compiled, CompiledGraph, Entry

pytestmark = pytest.mark.skipif(not versions.ONE_FRAME_SHOWN, reason="frames cannot be left out there")


RESUME = dis.opmap.get("RESUME", 0)


def names(error: BaseException) -> list[str]:
    """The functions of a traceback, but for the test's own."""
    return [entry.name for entry in traceback.extract_tb(error.__traceback__)][1:]


def caught(call: Any, *args: Any, **kwargs: Any) -> Any:
    """What a call raises, or gives."""
    try:
        return call(*args, **kwargs)
    except Exception as error:
        return error


def closing_over(cell: Any) -> Any:
    def inner(a: Any, *rest: Any, b: Any = 2, **more: Any) -> Any:
        def deeper() -> Any:
            return a, rest, b, more, cell

        return deeper()

    return inner


# -- frames that never ran ---------------------------------------------------------------------------------------------
def test_a_frame_stands_where_it_is_told() -> None:
    code = caught.__code__
    (call, *_) = [
        at for at, (line, *_) in zip(range(0, 1000, 2), code.co_positions()) if line and line > code.co_firstlineno + 2
    ]
    below = frame_at(nothing.__code__, {"__name__": "m"}, 0)
    frame = frame_at(code, globals(), call, below)
    assert (frame.f_code, frame.f_lasti, frame.f_back, frame.f_globals) == (code, call, below, globals())
    assert frame.f_lineno == code.co_firstlineno + 3
    assert dict(frame.f_locals) == {}
    frame.clear()


def test_its_free_variables_are_empty() -> None:
    inner = closing_over(3)
    code = inner.__code__
    entry = types.TracebackType(None, frame_at(code, globals(), 0), 0, code.co_firstlineno)
    shown = traceback.TracebackException(ValueError, ValueError(), entry, capture_locals=True)
    assert [each.name for each in shown.stack] == ["inner"]
    assert entry.tb_frame.f_lasti == 2 * code.co_code[::2].index(RESUME)


def test_what_is_no_place_is_refused() -> None:
    code = nothing.__code__
    for lasti in (-1, -2, len(code.co_code), 1 << 40):
        with pytest.raises((IndexError, OverflowError)):
            frame_at(code, {}, lasti)
    for args in ((3, {}, 0), (code, 3, 0), (code, {}, "0"), (code, {}, 0, 3)):
        with pytest.raises(TypeError):
            frame_at(*args)  # type: ignore[arg-type]


# -- the function as it was written ------------------------------------------------------------------------------------
def replaced(fn: Any, body: Any) -> Any:
    """The function under a callback that has code for it which calls `body`."""
    old = fn.__code__
    constants = tuple(body if each == PLACE else each for each in calls_body.__code__.co_consts)
    new = calls_body.__code__.replace(co_consts=constants, co_name=old.co_name, co_firstlineno=old.co_firstlineno)

    def callback(frame: Any, *_: Any) -> Any:
        return GuardedCode(new, lambda f_locals: True) if frame.f_code is old else None

    return Compiled(fn, callback)


PLACE = 424242


def calls_body(a: Any, b: Any = 1) -> Any:
    body: Any = 424242
    return body()


def whole(a: Any, b: Any = 1) -> Any:
    if b == 0:
        raise KeyError(a)
    return a, b, sys._getframe(1).f_code.co_name


def test_the_function_runs_from_its_start_in_one_frame() -> None:
    run = replaced(whole, AsWritten(whole.__code__))
    for _ in range(2):
        assert run("x", 2) == ("x", 2, "test_the_function_runs_from_its_start_in_one_frame")
        error = caught(run, "x", b=0)
        assert (type(error), error.args, names(error)) == (KeyError, ("x",), ["whole"])
        assert error.__traceback__.tb_next.tb_frame.f_locals == {"a": "x", "b": 0}
        assert error.__context__ is None


def test_it_has_no_other_caller() -> None:
    again = AsWritten(whole.__code__)
    with pytest.raises(ValueError, match="argument"):  # of a function with other arguments
        again()
    with pytest.raises(TypeError):
        again(1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        AsWritten(whole)  # type: ignore[arg-type]


def test_the_code_is_held_weakly() -> None:
    code = compile("3", "x", "eval")
    ref, again = weakref.ref(code), AsWritten(code)
    del code
    gc.collect()
    assert ref() is None
    with pytest.raises(ReferenceError):
        again()


# -- graphs ------------------------------------------------------------------------------------------------------------
def failing(*args: Any) -> Any:
    raise LookupError("in the graph")


def test_a_graph_that_raises_has_its_caller_run_as_written() -> None:
    asked: list[Any] = []

    def on_error(error: BaseException, args: Any) -> Any:
        asked.append(args)
        return None if args is not None else LookupError("nobody else")

    run = replaced(whole, CompiledGraph(failing, "g", on_error=on_error, written=whole.__code__))
    error = caught(run, "x", 0)
    assert (type(error), names(error), asked) == (KeyError, ["whole"], [()])
    error = caught(run, "x", 1)  # which the function does not raise
    assert (type(error), str(error), asked) == (LookupError, "nobody else", [(), (), None])


def test_an_error_that_is_given_back_is_raised_as_it_is() -> None:
    def on_error(error: BaseException, args: Any) -> Any:
        frame = frame_at(whole.__code__, globals(), 0)
        return error.with_traceback(types.TracebackType(None, frame, 0, 7))

    run = replaced(whole, CompiledGraph(failing, "g", on_error=on_error))
    error = caught(run, "x")
    assert names(error) == ["whole"]
    assert error.__traceback__.tb_next.tb_lineno == 7
    with pytest.raises(TypeError):
        CompiledGraph(failing, "g", written=3)  # type: ignore[arg-type]


def test_what_a_compiled_function_raises_is_shown_to_somebody() -> None:
    seen: list[BaseException] = []
    run = Compiled(failing, None, way=seen.append)
    error = caught(run)
    assert seen == [error]

    def forgets(error: BaseException) -> None:
        error.__traceback__ = None

    class Owner:
        method = Compiled(failing, None, way=forgets)

    assert names(caught(Owner().method)) == []


def test_nothing_is_left_behind() -> None:
    value = object()
    run = replaced(whole, CompiledGraph(failing, "g", on_error=lambda error, args: None, written=whole.__code__))
    again = replaced(whole, AsWritten(whole.__code__))
    for _ in range(3):
        caught(run, value, 0)
    before = sys.getrefcount(value), sys.getrefcount(whole.__code__)
    for _ in range(50):
        caught(run, value, 0)
        caught(again, value, 0)
        again(value)
        frame_at(closing_over(value).__code__, {}, 0)
    assert (sys.getrefcount(value), sys.getrefcount(whole.__code__)) == before


# -- what a frame begins with ------------------------------------------------------------------------------------------
def test_an_entry_gives_its_code_a_local() -> None:
    def old(a: Any) -> Any:
        return a

    def new(a: Any) -> Any:
        if a == PLACE:
            given: Any = None
        return a, given

    value = object()
    entry = Entry(new.__code__, lambda f_locals: True, local=("given", value))
    with callback_active(lambda frame, *_: entry if frame.f_code is old.__code__ else None):
        at_every_depth(lambda: old(1) == (1, value), True)
    before = sys.getrefcount(value)
    with callback_active(lambda frame, *_: entry if frame.f_code is old.__code__ else None):
        for _ in range(50):
            old(1)
    assert sys.getrefcount(value) == before
    with pytest.raises(ValueError, match="has no local other"):
        Entry(new.__code__, lambda f_locals: True, local=("other", value))


def test_what_leaves_a_function_that_is_gone_on_with_is_shown_to_somebody() -> None:
    def inner(a: Any) -> Any:
        raise KeyError(a)

    def old(a: Any) -> Any:
        return a

    seen: list[BaseException] = []
    called_last(inner.__code__, True, seen.append)
    constants = tuple(inner.__code__ if each == PLACE else each for each in making.__code__.co_consts)
    new = making.__code__.replace(co_consts=constants)
    with callback_active(
        lambda frame, *_: GuardedCode(new, lambda f_locals: True) if frame.f_code is old.__code__ else None
    ):
        for _ in range(2):
            error = caught(old, "x")
            assert (type(error), names(error)) == (KeyError, ["making", "inner"])
    assert len(seen) == 2


def making(a: Any) -> Any:
    code: Any = 424242
    return types.FunctionType(code, {})(a)

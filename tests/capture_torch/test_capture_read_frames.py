"""Frames that somebody reads after a break: each program that leaves frames behind, by each way to read them."""

from __future__ import annotations

import bdb
import contextlib
import ctypes
import faulthandler
import gc
import inspect
import io
import pdb  # noqa: T100
import sys
import traceback
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

import pytest
import torch
from apart import in_a_fork
from rich.console import Console
from rich.traceback import Traceback

import torchdynamo
from torchdynamo.bytecode import versions

KEPT: list[FrameType] = []


def keep_my_callers_frame() -> None:
    KEPT.append(sys._getframe(1))


class Base:
    scale = 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.scale
        torchdynamo.graph_break()
        if y.shape[0] > 1:
            raise ValueError("of the base")
        return y


class WithSuper(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = x + 1
        torchdynamo.graph_break()
        return super().forward(inner) + x


class Handling(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = x + 1
        try:
            return super().forward(inner)
        except ValueError as error:
            torchdynamo.graph_break()
            raise RuntimeError("handled") from error


def with_cells(x: torch.Tensor) -> torch.Tensor:
    total = x + 1
    count = 0

    def add() -> None:
        nonlocal total, count
        total, count = total + 1, count + 1

    add()
    torchdynamo.graph_break()
    add()
    raise ValueError(count)


def maker(offset: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def with_free_variables(x: torch.Tensor) -> torch.Tensor:
        y = x + offset
        torchdynamo.graph_break()
        z = y * offset
        torchdynamo.graph_break()
        raise ValueError(offset, z.shape)

    return with_free_variables


def keeping_an_exception(x: torch.Tensor) -> torch.Tensor:
    def self_and(y: torch.Tensor) -> Any:
        return x, y

    kept = None
    try:
        torchdynamo.graph_break()
        raise KeyError("first")
    except KeyError as error:
        kept = error
    torchdynamo.graph_break()
    self_and(x)
    raise ValueError("second") from kept


def keeping_itself(x: torch.Tensor) -> torch.Tensor:
    cell = x + 1
    keep_my_callers_frame()
    read = lambda: cell  # noqa: E731
    torchdynamo.graph_break()
    raise ValueError(read().shape)


def in_a_block(x: torch.Tensor) -> torch.Tensor:
    held = x + 1
    with torch.no_grad():
        read = [held for _ in range(2)]
        torchdynamo.graph_break()
        raise ValueError(len(read), held.shape)


def in_a_loop(x: torch.Tensor) -> torch.Tensor:
    held = x + 1
    keep_my_callers_frame()
    x = held * 2
    for turn in range(3):
        read = lambda: turn  # noqa: B023, E731
        torchdynamo.graph_break()
        x = x + read()
    raise ValueError(turn)


def through_a_generator(x: torch.Tensor) -> torch.Tensor:
    def steps() -> Iterator[torch.Tensor]:
        y = x
        while True:
            y = y + 1
            torchdynamo.graph_break()
            yield y
            if y.shape[0] > 1:
                raise ValueError("in the generator")

    running = steps()
    next(running)
    return next(running)


def in_what_it_calls(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    return with_cells(y) + y


def by_an_operator(x: torch.Tensor) -> torch.Tensor:
    read = lambda: x  # noqa: E731
    torchdynamo.graph_break()
    return read() @ torch.ones(7, 7)


PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "super": WithSuper().forward,
    "handling": Handling().forward,
    "free variables": maker(3),
    **{
        function.__name__: function
        for function in (
            with_cells,
            keeping_an_exception,
            keeping_itself,
            in_a_block,
            in_a_loop,
            through_a_generator,
            in_what_it_calls,
            by_an_operator,
        )
    },
}


def frames_of(error: BaseException | None) -> list[FrameType]:
    """Return all frames that an exception, and those that led to it, are known to have gone through."""
    frames = [*KEPT]
    while error is not None:
        frames += [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        error = error.__cause__ or error.__context__
    return frames


def captured_locals(error: BaseException) -> None:
    text = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert type(error).__name__ in text


def locals_of_all(error: BaseException) -> None:
    for frame in frames_of(error):
        for _ in range(2):
            assert isinstance(dict(frame.f_locals), dict)


def locals_up_the_stack(error: BaseException) -> None:
    for frame in frames_of(error):
        back = frame.f_back
        while back is not None:
            assert dict(back.f_locals) is not None
            assert back.f_lineno is None or back.f_lineno >= 0
            back = back.f_back


def post_mortem(error: BaseException) -> None:
    said = io.StringIO()
    debugger = pdb.Pdb(stdin=io.StringIO("where\np locals()\nup\np locals()\nargs\ndown\nquit\n"), stdout=said)
    debugger.reset()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "exc_info", lambda: (type(error), error, error.__traceback__))
        try:
            debugger.interaction(None, error.__traceback__)
        except bdb.BdbQuit:
            pass
    assert "{" in said.getvalue()


def richly(error: BaseException) -> None:
    rendered = Traceback.from_exception(type(error), error, error.__traceback__, show_locals=True)
    Console(file=io.StringIO(), width=200).print(rendered)


def inspected(error: BaseException) -> None:
    trace = error.__traceback__
    assert trace is not None
    for info in inspect.getinnerframes(trace):
        assert inspect.getargvalues(info.frame).locals is not None


def referrers(error: BaseException) -> None:
    frames = frames_of(error)
    gc.collect()
    for frame in frames:
        gc.get_referrers(frame)
        gc.get_referents(frame)


def cleared(error: BaseException) -> None:
    frames = frames_of(error)
    traceback.clear_frames(error.__traceback__)
    for frame in frames:
        with contextlib.suppress(RuntimeError):  # it is still running
            frame.clear()
        assert dict(frame.f_locals) is not None


def written_back(error: BaseException) -> None:
    """What a trace function that is done does."""
    to_fast = ctypes.pythonapi.PyFrame_LocalsToFast
    to_fast.argtypes, to_fast.restype = [ctypes.py_object, ctypes.c_int], None
    for frame in frames_of(error):
        assert dict(frame.f_locals) is not None
        to_fast(frame, 0)
        assert dict(frame.f_locals) is not None


def dumped(error: BaseException) -> None:
    with open("/dev/null", "w") as nowhere:
        faulthandler.dump_traceback(nowhere)


READERS: tuple[Callable[[BaseException], None], ...] = (
    captured_locals,
    locals_of_all,
    locals_up_the_stack,
    post_mortem,
    richly,
    inspected,
    referrers,
    cleared,
    written_back,
    dumped,
)


def outcome(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> BaseException:
    KEPT.clear()
    try:
        function(x)
    except (ValueError, RuntimeError) as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.fixture(scope="module")
def warm() -> None:
    """Have all imported that a first capture imports, so that no copy of the process does."""
    torchdynamo.compile(lambda x: x + 1, backend="eager")(torch.ones(2))


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_reader_finds_its_way(program: str) -> None:
    def read() -> int:
        gc.freeze()  # so that collections look at little
        compiled = torchdynamo.compile(PROGRAMS[program], backend="eager")
        for reader in READERS:
            for _ in range(2):
                reader(outcome(compiled, torch.ones(2)))
                gc.collect()
        return len(READERS)

    assert in_a_fork(read) == len(READERS)


def shown(error: BaseException | None) -> Iterator[tuple[str, int | None]]:
    """Yield function and line of each frame of ours, by exception."""
    while error is not None:
        for frame, line in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename == __file__ and frame.f_code.co_name != "outcome":
                yield frame.f_code.co_name, line
        yield type(error).__name__, None
        error = error.__cause__ or error.__context__


def variables(error: BaseException) -> dict[str, dict[str, str]]:
    return {
        frame.f_code.co_name: {name: as_text(value) for name, value in frame.f_locals.items()}
        for frame in frames_of(error)
        if frame.f_code.co_filename == __file__ and frame.f_code.co_name != "outcome"
    }


def as_text(value: Any) -> str:
    if isinstance(value, (FrameType, TracebackType, BaseException)) or callable(value):
        return type(value).__name__
    return repr(value).partition(" at 0x")[0]


@pytest.mark.skipif(not versions.ONE_FRAME_SHOWN, reason="a continuation has a frame of its own there")
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_shown_is_as_in_eager(program: str) -> None:
    """Variables that are needed no more may be missing; what is there is right. None is ours but the graph, where that
    raises."""
    function = PROGRAMS[program]
    eager = outcome(function, torch.ones(2))
    expected, lines = variables(eager), list(shown(eager))
    compiled = torchdynamo.compile(function, backend="eager")
    for _ in range(3):
        error = outcome(compiled, torch.ones(2))
        assert list(shown(error)) == lines
        for name, found in variables(error).items():
            if program == "by_an_operator":
                found = {variable: value for variable, value in found.items() if value != "CompiledGraph"}
            assert found.items() <= expected[name].items(), name
            assert {"__class__", "offset", "count", "total"} & expected[name].keys() <= found.keys()

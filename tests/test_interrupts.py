"""Ctrl-C, and other signals, while a frame is compiled: an exception comes out of the call, and nowhere else."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from apart import in_a_fork
from torch.utils._python_dispatch import TorchDispatchMode

import torchdynamo
from torchdynamo.eval_frame import cache_entries

X = torch.ones(3)
CAME: list[str] = []


@torch.library.custom_op("interrupts::noted", mutates_args=())
def noted(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@noted.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    """C++ calls this, and is called by it."""
    signal.raise_signal(signal.SIGINT)
    CAME.append("behind the signal")
    return torch.empty_like(x)


class Interrupting(TorchDispatchMode):
    """A signal comes while C++ has called Python."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        signal.raise_signal(signal.SIGINT)
        CAME.append("behind the signal")
        return func(*args, **kwargs or {})


@pytest.fixture(autouse=True)
def nothing_came_yet() -> None:
    CAME.clear()


def test_in_what_a_capture_calls() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return noted(x) * 2

    compiled = torchdynamo.compile(fn, backend="eager")
    with pytest.raises(KeyboardInterrupt):
        compiled(X)
    assert CAME == ["behind the signal"]
    assert not cache_entries(fn)
    assert torchdynamo.compile(lambda x: x * 2, backend="eager")(X).tolist() == [2.0] * 3


def test_in_a_backend_where_torch_has_called_python() -> None:
    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        with Interrupting():
            inputs[0] + 1
        for _ in range(1000):
            time.sleep(0.01)
        CAME.append("never")
        return gm.forward

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        torchdynamo.compile(lambda x: x * 3, backend=backend)(X)
    assert CAME == ["behind the signal"]
    assert time.monotonic() - began < 5


def test_in_a_backend_elsewhere_at_once() -> None:
    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        signal.raise_signal(signal.SIGINT)
        CAME.append("never")
        return gm.forward

    with pytest.raises(KeyboardInterrupt):
        torchdynamo.compile(lambda x: x * 4, backend=backend)(X)
    assert CAME == []


def test_a_backend_that_ends_first() -> None:
    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        with Interrupting():
            inputs[0] + 1
        return gm.forward

    with pytest.raises(KeyboardInterrupt):
        torchdynamo.compile(lambda x: x * 5, backend=backend)(X)
    time.sleep(0.05)  # it comes once
    assert CAME == ["behind the signal"]


@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1])
def test_handlers_of_the_program_are_called_once(number: signal.Signals) -> None:
    called: list[int] = []
    before = signal.signal(number, lambda number, frame: called.append(number))
    try:

        def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            signal.raise_signal(number)
            signal.raise_signal(number)
            return gm.forward

        result = torchdynamo.compile(lambda x: x * 6, backend=backend)(X)
    finally:
        signal.signal(number, before)
    assert result.tolist() == [6.0] * 3
    assert called == [number, number]


class Late(Exception):
    """What a handler of the program raises when the time is up."""


def too_late(number: int, frame: Any) -> None:
    raise Late


@pytest.fixture
def alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, too_late)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
@pytest.mark.filterwarnings("error")
def test_an_error_of_a_handler_is_no_failure_of_a_backend() -> None:
    """Nor of a capture: it goes to the program, and the function is compiled the next time."""
    times: list[int] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        times.append(len(times))
        if len(times) == 1:
            signal.raise_signal(signal.SIGALRM)
        return gm.forward

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * 10

    compiled = torchdynamo.compile(fn, backend=backend)
    with pytest.raises(Late):
        compiled(X)
    assert compiled(X).tolist() == [10.0] * 3
    assert times == [0, 1]
    assert len(cache_entries(fn)) == 1


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("swallow", [False, True])
def test_an_error_of_a_handler_that_is_lost_comes_in_the_end(swallow: bool) -> None:
    class Dying:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGALRM)

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        if swallow:
            try:
                signal.raise_signal(signal.SIGALRM)
            except Late:
                CAME.append("caught")
        else:
            Dying()
        return gm.forward

    with pytest.raises(Late), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.unraisablehook", lambda args: CAME.append("lost"))
        torchdynamo.compile(lambda x: x * 11, backend=backend)(X)
    assert ["caught" if swallow else "lost"] == CAME


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("name", ["__enter__", "__exit__"])
def test_a_block_is_entered_or_left_as_a_whole(name: str) -> None:
    came: list[str] = []

    class Block:
        def __enter__(self) -> None:
            self.at("__enter__")

        def __exit__(self, *args: object) -> None:
            self.at("__exit__")

        def at(self, where: str) -> None:
            if where == name:
                signal.raise_signal(signal.SIGALRM)
            came.append(where)

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        with contextlib.ExitStack() as stack:
            stack.enter_context(Block())
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            pass
        return gm.forward

    with pytest.raises(Late):
        torchdynamo.compile(lambda x: x * 12, backend=backend)(X)
    assert came == ["__enter__", "__exit__"]


def test_a_handler_that_the_program_sets_meanwhile_stays() -> None:
    def later(number: int, frame: Any) -> None: ...

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        signal.signal(signal.SIGUSR1, later)
        return gm.forward

    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        torchdynamo.compile(lambda x: x * 7, backend=backend)(X)
        assert signal.getsignal(signal.SIGUSR1) is later
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_compile_in_another_thread_leaves_signals_alone() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        begun.set()
        go_on.wait(60)
        return gm.forward

    thread = threading.Thread(target=torchdynamo.compile(lambda x: x * 8, backend=backend), args=(X,))
    thread.start()
    assert begun.wait(60)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        go_on.set()
        thread.join()


def test_a_child_of_another_thread_has_the_programs_handlers() -> None:
    found: list[Any] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        thread = threading.Thread(target=lambda: found.append(in_a_fork(is_interrupted)))
        thread.start()
        thread.join()
        return gm.forward

    torchdynamo.compile(lambda x: x * 9, backend=backend)(X)
    assert found == [True]


def is_interrupted() -> bool:
    try:
        signal.raise_signal(signal.SIGINT)
        return False
    except KeyboardInterrupt:
        return True


def interrupted_at_any_time(tries: int, backend: str) -> int:
    """Compile again and again; how many of the calls were interrupted, each by one signal."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16), torch.nn.ReLU())
    inputs = [torch.randn(2, length, 16) for length in (3, 4)]
    expected = model(inputs[0])
    compiled, chosen, interrupted = torchdynamo.compile(model, backend=backend), random.Random(0), 0
    began = time.monotonic()
    [compiled(x) for x in inputs]
    usual = time.monotonic() - began
    for _ in range(tries):
        torchdynamo.reset()
        timer = threading.Timer(chosen.uniform(0, usual / 2), os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            for x in inputs:
                compiled(x)
            timer.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            interrupted += 1
        timer.join()
        assert torch.allclose(compiled(inputs[0]), expected, atol=1e-6)
    return interrupted


@pytest.mark.long
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_interrupted_at_any_time(backend: str) -> None:
    torchdynamo.compile(lambda x: x + 1, backend=backend)(X)
    assert in_a_fork(lambda: interrupted_at_any_time(12, backend)) == 12

"""Processes that are forked while a frame is compiled: by another thread, or by the one that forks."""

from __future__ import annotations

import builtins
import gc
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from apart import in_a_fork

import torchdynamo
from torchdynamo.eval_frame import cache_entries
from torchdynamo.hook import compile_lock
from torchdynamo.hook.install import hook_is_in

X = torch.ones(3)


class Waiting:
    """A backend that lets others know that it is at work, and waits until it may go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        self.begun.set()
        self.go_on.wait(60)
        return gm.forward


@pytest.fixture
def compiling() -> Iterator[None]:
    """Another thread compiles a frame, for as long as the test runs."""
    backend = Waiting()
    thread = threading.Thread(target=torchdynamo.compile(lambda x: x * 2, backend=backend), args=(X,))
    thread.start()
    assert backend.begun.wait(60)
    try:
        yield
    finally:
        backend.go_on.set()
        thread.join()


def compiles_at_once() -> tuple[list[float], int, bool, bool, bool]:
    """Compile something; return the result, how often that was, and whether all is then as it was."""

    def fresh(x: torch.Tensor) -> torch.Tensor:
        return x * 3 + 1

    began = time.monotonic()
    result = torchdynamo.compile(fresh, backend="eager")(X).tolist()
    quick = time.monotonic() - began < compile_lock.PATIENCE / 2
    return result, len(cache_entries(fresh)), quick, gc.isenabled(), hook_is_in()


EXPECTED = ([4.0, 4.0, 4.0], 1, True, True, False)


@pytest.mark.usefixtures("compiling")
def test_a_child_compiles_without_waiting() -> None:
    assert in_a_fork(compiles_at_once) == EXPECTED


@pytest.mark.usefixtures("compiling")
def test_a_childs_child() -> None:
    assert in_a_fork(lambda: in_a_fork(compiles_at_once)) == EXPECTED


@pytest.mark.usefixtures("compiling")
def test_a_child_of_a_thread() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(in_a_fork(compiles_at_once)))
    thread.start()
    thread.join()
    assert found == [EXPECTED]


def test_a_child_that_the_backend_makes() -> None:
    """It goes on with the compile, and may compile what the backend calls."""
    found: list[Any] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        found.append(in_a_fork(compiles_at_once))
        return gm.forward

    assert torchdynamo.compile(lambda x: x - 1, backend=backend)(X).tolist() == [0.0, 0.0, 0.0]
    assert found == [EXPECTED]


def test_a_child_that_a_deep_call_makes_has_the_hook() -> None:
    """Where the hook is out for another thread, that has no more stack for it."""
    pause, go_on = threading.Event(), threading.Event()

    def deep(n: int) -> None:
        if n:
            deep(n - 1)
        else:
            pause.set()
            go_on.wait(60)

    def work() -> None:
        with torchdynamo.optimize("eager"):
            deep(900)

    threading.stack_size(512 * 1024)
    thread = threading.Thread(target=work)
    threading.stack_size(0)
    thread.start()
    assert pause.wait(60)
    try:
        assert in_a_fork(compiles_at_once) == EXPECTED
    finally:
        go_on.set()
        thread.join()


class TestReplacedBuiltins:
    """Python's own are in their places while a frame is compiled, and the program's are back in a child."""

    def replaced(self) -> Callable[[Any], int]:
        return lambda value: 7

    def test_by_another_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mine = self.replaced()
        monkeypatch.setattr(builtins, "ascii", mine)
        backend = Waiting()
        thread = threading.Thread(target=torchdynamo.compile(lambda x: x * 5, backend=backend), args=(X,))
        thread.start()
        assert backend.begun.wait(60)
        try:
            assert in_a_fork(lambda: ascii(3)) == 7
        finally:
            backend.go_on.set()
            thread.join()
        assert ascii is mine

    def test_what_is_replaced_meanwhile_stays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(builtins, "ascii", self.replaced())
        later = self.replaced()

        def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            builtins.ascii = later  # type: ignore[assignment]
            return gm.forward

        torchdynamo.compile(lambda x: x * 6, backend=backend)(X)
        assert ascii is later


def test_pools_of_processes() -> None:
    """As data loaders and pools fork: from a program that compiles in threads."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            torchdynamo.compile(lambda x: x + 2, backend="eager")(X)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            assert in_a_fork(compiles_at_once) == EXPECTED
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert gc.isenabled()


def told_of_a_child() -> tuple[Any, Any]:
    """Return what a process of multiprocessing, started within a block, says of blocks and of what is decorated."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(hook_is_in), pool.apply(compiles_at_once)


def test_processes_of_multiprocessing_are_in_no_block() -> None:
    with torchdynamo.optimize("eager"):
        assert in_a_fork(told_of_a_child) == (False, EXPECTED)
        assert hook_is_in()

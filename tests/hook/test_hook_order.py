"""Blocks and calls of one thread that do not end in the reverse order of their beginning."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from torchdynamo.eval_frame import callback_active, set_eval_frame
from torchdynamo.hook.install import Compiled, CompiledGraph, hook_is_in


class Named:
    """A callback that is interested in nothing, by name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any) -> None: ...

    def __repr__(self) -> str:
        return self.name


def current() -> Any:
    callback = set_eval_frame(None)
    set_eval_frame(callback)
    return callback


def block(callback: Any) -> Iterator[None]:
    with callback_active(callback):
        yield


A, B, C = (Named(name) for name in "ABC")
ORDERS = list(itertools.permutations(range(3)))


@pytest.mark.parametrize("order", ORDERS)
def test_generators_leave_in_any_order(order: tuple[int, ...]) -> None:
    running = [block(callback) for callback in (A, B, C)]
    for each in running:
        next(each)
    left: set[int] = set()
    for index in order:
        next(running[index], None)
        left.add(index)
        still = [callback for at, callback in enumerate((A, B, C)) if at not in left]
        assert current() is (still[-1] if still else None)
    assert not hook_is_in()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("outside", [None, A])
def test_what_was_on_outside_stays_on(order: tuple[int, ...], outside: Any) -> None:
    with callback_active(outside):
        running = [block(callback) for callback in (B, None, C)]
        for each in running:
            next(each)
        for index in order:
            running[index].close()
        assert current() is outside
    assert current() is None


def test_tasks_that_wait_for_each_other() -> None:
    async def worker(callback: Any, mine: asyncio.Event, other: asyncio.Event) -> None:
        with callback_active(callback):
            mine.set()
            await other.wait()

    async def main() -> None:
        events = [asyncio.Event() for _ in range(4)]
        await asyncio.gather(*(worker(Named(str(at)), event, events[at - 1]) for at, event in enumerate(events)))

    asyncio.run(main())
    assert current() is None
    assert not hook_is_in()


def test_a_block_that_outlives_the_call_it_began_in() -> None:
    running = block(B)
    Compiled(next, A)(running)
    assert current() is B
    next(running, None)
    assert current() is None


def test_a_call_that_ends_a_block_from_outside() -> None:
    running = block(B)
    next(running)
    seen: list[Any] = []
    Compiled(lambda: (running.close(), seen.append(current())), A)()
    assert seen == [A]
    assert current() is None


def test_a_graph_that_ends_a_block_from_outside() -> None:
    running = block(B)
    next(running)
    CompiledGraph(running.close, "graph")()
    assert current() is None


def test_a_block_nobody_can_leave() -> None:
    entered = callback_active(A).__enter__()
    assert current() is A
    del entered
    gc.collect()
    assert current() is None


def test_a_callback_set_inside_of_a_block_goes_with_it() -> None:
    running = block(A)
    with callback_active(B):
        next(running)
        set_eval_frame(C)
    assert current() is C
    next(running, None)
    assert current() is None

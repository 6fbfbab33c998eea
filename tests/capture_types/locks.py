"""Locks that existed at entry: taken without a break where nobody can have them; and what threads then see.

Run by test_types_locks, in a process that has no other thread.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch
from following import check

import torchdynamo
from torchdynamo import _native

X = torch.arange(4.0)
LOCK, RLOCK = threading.Lock(), threading.RLock()


def taken(x: Any) -> Any:
    with LOCK:
        y = x + 1
    return y, LOCK.locked()


def taken_twice(x: Any) -> Any:
    with RLOCK, RLOCK:
        return x * 2


def asked(x: Any) -> Any:
    return x + 1, LOCK.locked(), LOCK.acquire(False), LOCK.locked(), LOCK.release()


class SetUp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.ready = 0

    def forward(self, x: Any) -> Any:
        if not self.ready:
            with self.lock:
                if not self.ready:
                    self.ready = 2
        return x * self.ready


@pytest.mark.parametrize("fn", [taken, taken_twice, asked])
def test_locks(fn: Any) -> None:
    check(fn, (X,))


def test_set_up_under_a_lock() -> None:
    module = SetUp()
    compiled = torchdynamo.compile(module, backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(X), X * 2)
    assert not module.lock.locked() and module.ready == 2


def broken(x: Any) -> Any:
    y = x + 1
    with LOCK:
        y = y * 2
        torchdynamo.graph_break()
        y = y + LOCK.locked()
    return y, LOCK.locked()


def test_a_break_while_it_is_held() -> None:
    wanted = broken(X)
    got = torchdynamo.compile(broken, backend="eager")(X)
    assert torch.equal(got[0], wanted[0]) and not got[1] and not LOCK.locked()


SHARED: dict[str, int] = {"a": 0, "b": 0}


def reads(x: Any) -> Any:
    with LOCK:
        return x + SHARED["a"] - SHARED["b"]


def writes(x: Any) -> Any:
    with LOCK:
        SHARED["a"] += 1
    return x + 1


def holding(change: Any) -> threading.Thread:
    """A thread that has the lock by now, and for a while."""
    has = threading.Event()

    def run() -> None:
        with LOCK:
            SHARED["a"] += 1
            has.set()
            time.sleep(0.1)
            change()

    thread = threading.Thread(target=run)
    thread.start()
    has.wait()
    return thread


@pytest.mark.parametrize("first", [True, False])
def test_who_comes_while_it_is_held_waits(first: bool) -> None:
    torchdynamo.reset()
    SHARED.update(a=0, b=0)
    compiled = torchdynamo.compile(reads, backend="eager")
    if not first:
        compiled(X)
    thread = holding(lambda: SHARED.update(b=1))
    got = compiled(X)
    thread.join()
    assert torch.equal(got, X)


def test_what_is_written_while_other_threads_run_is_written_under_the_lock() -> None:
    torchdynamo.reset()
    SHARED.update(a=0, b=0)
    compiled = torchdynamo.compile(writes, backend="eager", fullgraph=True)
    compiled(X)
    assert SHARED["a"] == 1
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    with pytest.raises(torchdynamo.errors.Unsupported, match="lock"):
        compiled(X)
    done.set()
    thread.join()
    assert _native.cache_entries(writes.__code__)

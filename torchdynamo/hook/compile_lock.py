"""Let one thread compile at a time; the others use what it has compiled.

Capture changes settings of the process, and two threads that meet a function for the first time would both compile it.
The wait is limited: a backend may take a lock that another thread holds while it waits for us, as Inductor and
torch.compile do. A thread that has waited long enough runs the call eagerly, and tries again the next time. While
whoever compiles calls the program, which may wait for another thread, that is a moment.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 30.0  # seconds
PATIENCE_OF_A_FORK = 1.0
MOMENT = 0.05
_turn = threading.RLock()  # reentrant, because a backend may call compiled functions


@contextmanager
def turn(patience: float | None = None) -> Iterator[bool]:
    """Hold the right to compile inside of the block. Yields False if the thread has waited too long for it.

    patience: seconds to wait, by default `PATIENCE`.
    """
    lock = _turn  # a process forked inside of the block may have another
    end = time.monotonic() + (PATIENCE if patience is None else patience)
    ours = lock.acquire(blocking=False)
    while not ours and (left := end - time.monotonic()) > 0:
        ours = lock.acquire(timeout=min(left, MOMENT))
        if _calling:
            break
    try:
        yield ours
    finally:
        if ours:
            lock.release()


@contextmanager
def lent() -> Iterator[None]:
    """Call the program inside of the block, where we compile: threads that it waits for wait no longer for us."""
    _calling.append(None)
    try:
        yield
    finally:
        _calling.pop()


_calling: list[None] = []  # calls of the program that whoever compiles is in
_forking = threading.local()


def _before_fork() -> None:
    """Wait briefly for the thread that compiles: the new process would inherit its locks, but not the thread."""
    _forking.ours = _turn if _turn.acquire(timeout=PATIENCE_OF_A_FORK) else None


def _after_fork() -> None:
    if _forking.ours is not None:
        _forking.ours.release()
    _forking.ours = None


def _forked() -> None:
    """Replace the lock in a new process if a thread holds it that does not exist there."""
    global _turn
    given = _forking.ours is not None
    _after_fork()
    if not given:
        _turn = threading.RLock()
        _calling.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forked)

"""Disable Python's cyclic garbage collector while a frame is compiled.

A capture makes many objects, nearly all of which live until it ends. Collections in between find nothing, and full ones
traverse the whole heap of the process: a fifth of a second with a library of models imported.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_resting: dict[int, int] = {}  # thread id -> number of frames it compiles; a Counter would call replaceable builtins
_was_on = False


def _count(change: int) -> None:
    global _was_on
    with _lock:
        before = bool(_resting)
        mine = threading.get_ident()
        count = _resting.pop(mine, 0) + change
        if count:
            _resting[mine] = count
        if _resting and not before:
            _was_on = gc.isenabled()
            gc.disable()
        elif before and not _resting and _was_on:
            gc.enable()


def _forked() -> None:
    """Forget compiles of threads that a new process does not have."""
    global _lock
    _lock, mine, before = threading.Lock(), threading.get_ident(), bool(_resting)
    for thread in [*_resting]:
        if thread != mine:
            del _resting[thread]
    if before and not _resting and _was_on:
        gc.enable()


os.register_at_fork(after_in_child=_forked)


@contextmanager
def resting() -> Iterator[None]:
    """Disable the collector inside of the block; restore it when the last compile ends."""
    _count(1)
    try:
        yield
    finally:
        _count(-1)


@contextmanager
def awake() -> Iterator[None]:
    """Enable the collector inside of `resting`, for a backend, which may take long.

    Objects made so far do not count towards its threshold: most of them live until the frame is compiled.
    """
    if not _resting:
        yield
        return
    before = gc.get_threshold()
    after = (before[0] and before[0] + gc.get_count()[0], *before[1:])
    gc.set_threshold(*after)
    _count(-1)
    try:
        yield
    finally:
        _count(1)
        if gc.get_threshold() == after:
            gc.set_threshold(*before)

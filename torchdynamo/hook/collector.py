"""Python's cyclic garbage collector rests while a frame is compiled.

A capture makes a great many objects, nearly all of which live until it ends. Collections in between find nothing, and
now and then walk all that the process has: a fifth of a second where a library of models is imported.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_resting: dict[int, int] = {}  # by thread: how many frames it compiles; a Counter would call what a program replaces
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
    """Forget what threads compile that a new process does not have."""
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
    """Keep the collector off inside, and leave it as it was."""
    _count(1)
    try:
        yield
    finally:
        _count(-1)


@contextmanager
def awake() -> Iterator[None]:
    """Let the collector work inside of `resting`, for what is not ours and may take long: a backend.

    What was made so far is no reason to collect: the capture lives on, and most of it goes when the frame is compiled.
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

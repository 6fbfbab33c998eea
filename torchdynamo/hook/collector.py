"""Python's cyclic garbage collector rests while a frame is compiled.

A capture makes a great many objects, nearly all of which live until it ends. Collections in between find nothing, and
now and then walk all that the process has: a fifth of a second where a library of models is imported.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_resting = 0  # how many frames are being compiled, in all threads
_was_on = False


def _count(change: int) -> None:
    global _resting, _was_on
    with _lock:
        before, _resting = _resting, _resting + change
        if not before:
            _was_on = gc.isenabled()
            gc.disable()
        elif not _resting and _was_on:
            gc.enable()


@contextmanager
def resting() -> Iterator[None]:
    """No collection happens in here; afterwards all is as it was."""
    _count(1)
    try:
        yield
    finally:
        _count(-1)


@contextmanager
def awake() -> Iterator[None]:
    """Inside of `resting`, for what is not ours and may take long: a backend.

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

"""Threads compile one at a time, and what one has compiled the others need not.

Capture switches settings of the process for real, and two threads that meet a function for the first time would both
compile it. A wait is not for ever: a backend may take a lock that another thread holds while it waits for us, as
Inductor and torch.compile do, so who has waited long enough runs the call eagerly, and asks again the next time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from torchdynamo import _native
from torchdynamo.core.source import Roots

PATIENCE = 30.0  # seconds
PATIENCE_OF_A_FORK = 1.0
_turn = threading.RLock()  # a backend may call what is compiled, too


@contextmanager
def turn() -> Iterator[bool]:
    """Be the only thread that compiles. False: it did not come to that."""
    lock = _turn  # a new process, forked in here, may have another
    ours = lock.acquire(timeout=PATIENCE)
    try:
        yield ours
    finally:
        if ours:
            lock.release()


_forking = threading.local()


def _before_fork() -> None:
    """Wait a moment for who compiles now: a new process would have its locks, and nobody to release them."""
    _forking.ours = _turn if _turn.acquire(timeout=PATIENCE_OF_A_FORK) else None


def _after_fork() -> None:
    if _forking.ours is not None:
        _forking.ours.release()
    _forking.ours = None


def _forked() -> None:
    """Take back the turn of a thread that a new process does not have: it would never end."""
    global _turn
    given = _forking.ours is not None
    _after_fork()
    if not given:
        _turn = threading.RLock()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forked)


def publish(code: CodeType, made: Any) -> None:
    """Let the next thread in turn find an entry."""
    if isinstance(made, _native.Entry):
        _native.keep_entry(code, made)


def made_meanwhile(code: CodeType, roots: Roots, owner_id: int) -> Any:
    """Return an entry that fits the frame and that this compiler made since the hook looked, or None."""
    for entry in _native.cache_entries(code):
        program = entry.check
        if entry.owner_id != owner_id or not isinstance(program, _native.GuardProgram):
            continue
        if program.check(roots.locals, roots.globals, roots.builtins, roots.closure):
            return entry
    return None

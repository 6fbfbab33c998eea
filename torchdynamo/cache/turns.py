"""Threads compile one at a time, and what one has compiled the others need not.

Capture switches settings of the process for real, and two threads that meet a function for the first time would both
compile it. A wait is not for ever: a backend may take a lock that another thread holds while it waits for us, as
Inductor and torch.compile do, so who has waited long enough runs the call eagerly, and asks again the next time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from torchdynamo import _native
from torchdynamo.capture.source import Roots

PATIENCE = 30.0  # seconds
_turn = threading.RLock()  # a backend may call what is compiled, too


@contextmanager
def turn() -> Iterator[bool]:
    """Be the only thread that compiles. False: it did not come to that."""
    ours = _turn.acquire(timeout=PATIENCE)
    try:
        yield ours
    finally:
        if ours:
            _turn.release()


def publish(code: CodeType, made: Any) -> None:
    """Let the next thread in turn find an entry."""
    if isinstance(made, _native.Entry):
        _native.keep_entry(code, made)


def made_meanwhile(code: CodeType, roots: Roots, owner_id: int) -> Any:
    """An entry that fits the frame and that this compiler made since the hook looked, or None."""
    for entry in _native.cache_entries(code):
        program = entry.check
        if entry.owner_id != owner_id or not isinstance(program, _native.GuardProgram):
            continue
        if program.check(roots.locals, roots.globals, roots.builtins, roots.closure):
            return entry
    return None

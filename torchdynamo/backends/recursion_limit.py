"""The limit of recursion, which Inductor raises for the whole process at each compile and never sets back."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

INDUCTORS = 2000  # frames: what it raises a lower limit to

_lock = threading.Lock()
_compiling = 0  # how many compiles are under way, in all threads
_programs = 0  # frames: the limit when the first of them began


@contextlib.contextmanager
def unraised() -> Iterator[None]:
    """Let Inductor raise the limit while this is open; when the last thread leaves, it is as the program set it.

    What the program sets meanwhile stays, and so does the raised limit where the calls under way are deeper than the
    program's.
    """
    global _compiling, _programs
    with _lock:
        if not _compiling:
            _programs = sys.getrecursionlimit()
        _compiling += 1
    try:
        yield
    finally:
        with _lock:
            _compiling -= 1
            if not _compiling and sys.getrecursionlimit() == INDUCTORS > _programs:
                with contextlib.suppress(RecursionError):
                    sys.setrecursionlimit(_programs)

"""Restore the recursion limit, which Inductor raises for the whole process at each compile."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

INDUCTORS = 2000  # frames: Inductor raises a lower limit to this

_lock = threading.Lock()
_compiling = 0  # how many compiles are under way, in all threads
_programs = 0  # frames: the limit when the first of them began


@contextlib.contextmanager
def recursion_limit_restored() -> Iterator[None]:
    """Restore the program's recursion limit when the last compile in the process leaves the block.

    A limit that the program sets meanwhile stays, and so does the raised one if the current calls are deeper than the
    program's limit.
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

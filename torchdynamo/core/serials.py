"""Number things in the order in which they come, whatever threads they come from."""

from __future__ import annotations

import itertools
import os
import threading


class Serials:
    """Numbers, each given once, where `itertools.count` without the global interpreter lock may give one twice.

    Made once, for a module.

    first: the number to begin with.
    """

    def __init__(self, first: int = 0) -> None:
        self._numbers = itertools.count(first)
        self._forked()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """Replace the lock, which in a new process may be held by a thread that does not exist there."""
        self._lock = threading.Lock()

    def take(self) -> int:
        """Return the next number."""
        with self._lock:
            return next(self._numbers)

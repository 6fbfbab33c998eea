"""Python's builtins as they were when torchdynamo was imported.

If the program replaces some, it gets its own; the code that captures and compiles goes on with the original ones, which
are restored while it runs.
"""

from __future__ import annotations

import builtins
import os
import threading
from types import TracebackType
from typing import Any

REAL: dict[str, Any] = vars(builtins)
# Builtins that only talk to the outside world, and that programs replace for good, are left as they are.
OUTSIDE = ("print", "open", "input", "breakpoint", "help", "exit", "quit", "copyright", "credits", "license")
STOCK = tuple((name, value) for name, value in REAL.items() if name not in (*OUTSIDE, "__import__", "_"))


class Seen(dict[str, Any]):
    """A copy of the builtins as the program sees them, made if it has replaced some."""


class StockBuiltins:
    """Restores Python's own builtins inside of the block, and yields the builtins that the program sees."""

    __slots__ = ("replaced", "space")

    def __init__(self, space: dict[str, Any]) -> None:
        self.space = space
        self.replaced: dict[str, Any] | None = None

    def __enter__(self) -> dict[str, Any]:
        if self.space is not REAL:
            return self.space
        for name, value in STOCK:
            if name not in REAL or REAL[name] is not value:
                break
        else:
            return self.space
        OPEN[id(self)] = (threading.get_ident(), self)
        self.replaced = {name: REAL[name] for name, value in STOCK if name in REAL and REAL[name] is not value}
        self.replaced.update({name: GONE for name, _ in STOCK if name not in REAL})
        seen = Seen(REAL)
        REAL.update(STOCK)
        return seen

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        stock = dict(STOCK)
        for name, value in (self.replaced or {}).items():
            if REAL.get(name) is not stock[name]:  # somebody has replaced it since
                continue
            if value is GONE:
                del REAL[name]
            else:
                REAL[name] = value
        OPEN.pop(id(self), None)


GONE = object()
OPEN: dict[int, tuple[int, StockBuiltins]] = {}  # id -> thread id and a block that has replaced builtins


def _forked() -> None:
    """Undo replacements by threads that a new process does not have."""
    mine = threading.get_ident()
    for thread, kept in [*OPEN.values()]:
        if thread != mine:
            kept.__exit__(None, None, None)


os.register_at_fork(after_in_child=_forked)

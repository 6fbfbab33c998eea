"""Python's builtins as they were when torchdynamo was imported.

A program may put its own in their place: it then gets those. What captures and compiles the program goes on with the
ones there were, which are back in their places while it runs.
"""

from __future__ import annotations

import builtins
import os
import threading
from types import TracebackType
from typing import Any

REAL: dict[str, Any] = vars(builtins)
# Those that programs replace for good, and that only talk to the world outside, stay as they are.
OUTSIDE = ("print", "open", "input", "breakpoint", "help", "exit", "quit", "copyright", "credits", "license")
STOCK = tuple((name, value) for name, value in REAL.items() if name not in (*OUTSIDE, "__import__", "_"))


class Seen(dict[str, Any]):
    """A copy of the builtins as the program sees them, made where it has replaced some."""


class StockBuiltins:
    """While entered, Python's own builtins are in their places; gives what the program sees as its builtins."""

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
            if REAL.get(name) is not stock[name]:  # somebody has written another since
                continue
            if value is GONE:
                del REAL[name]
            else:
                REAL[name] = value
        OPEN.pop(id(self), None)


GONE = object()
OPEN: dict[int, tuple[int, StockBuiltins]] = {}  # those that have put something in its place, with their thread


def _forked() -> None:
    """Put back what threads have replaced that a new process does not have."""
    mine = threading.get_ident()
    for thread, kept in [*OPEN.values()]:
        if thread != mine:
            kept.__exit__(None, None, None)


os.register_at_fork(after_in_child=_forked)

"""Defer signals while a frame is compiled, until an exception can be raised safely.

Python runs a signal's handler (KeyboardInterrupt, for Ctrl-C) between any two instructions. A capture calls torch's
C++, which calls Python again from functions that end the process if an exception leaves them. So handlers are called at
safe points: at each captured instruction; in a backend, when no call of torch's C++ is active and no `with` block is
being entered or left, which an exception might leave half open; and at the end. Python calls handlers in the main
thread only, so only that thread needs this.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from torchdynamo import _native

Handler = Callable[[int, FrameType | None], Any]

WATCHED = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2", "SIGQUIT")
)
EDGES = frozenset({"__enter__", "__exit__", "enter_context"})
EVERY = 0.001  # seconds between checks whether a backend can be interrupted

waiting: list[int] = []  # signals that have arrived; safe points check whether it is empty
_handlers: dict[int, Handler] = {}  # the program's handlers, while ours replace them
_raised: list[BaseException] = []  # exceptions of handlers, which may get lost on their way, as in a finalizer
_taken_by = 0  # id of the thread that installed our handlers
_place: int | None = None  # position on the C stack where the running backend began; None if none runs
_caller: FrameType | None = None  # the frame that called the backend
_looking = threading.Lock()  # held while deciding whether to interrupt the main thread


class DeferredSignals:
    """The state of a block in which signals are deferred. `error`: a handler's exception, raised at its end."""

    error: BaseException | None = None


@contextlib.contextmanager
def deferred() -> Iterator[DeferredSignals]:
    """Defer signals inside of the block; call their handlers at its end, if not before.

    At the end it also raises what a handler raised earlier and somebody has caught since.
    """
    region = DeferredSignals()
    if _handlers or threading.current_thread() is not threading.main_thread():
        yield region
        return
    try:
        _take_over()
        yield region
    finally:
        mine = dict(_handlers)
        _give_back()
        while waiting:
            with contextlib.suppress(BaseException):  # recorded in `_raised`
                deliver(mine)
        region.error = _raised[0] if _raised else None
        _raised.clear()
        if region.error is not None:
            raise region.error


@contextlib.contextmanager
def allowed() -> Iterator[None]:
    """Let signals through inside of `deferred`, for a backend, which may take long."""
    global _caller, _place
    if not _handlers or threading.current_thread() is not threading.main_thread():
        yield
        return
    if waiting:
        deliver()
    outer = _place, _caller
    _place, _caller = _native.stack_place(), sys._getframe(2)  # the frame that called __enter__
    try:
        yield
    finally:
        with _looking:
            _place, _caller = outer


def deliver(handlers: dict[int, Handler] | None = None) -> None:
    """Call the handlers of the signals that have arrived; they may raise."""
    if threading.current_thread() is not threading.main_thread():
        return
    known = dict(_handlers) if handlers is None else handlers
    while waiting:
        number = waiting.pop(0)
        try:
            known[number](number, None)
        except BaseException as error:
            _raised.append(error)
            raise


def came() -> bool:
    """Return whether a handler has raised: its exception goes to the program, whatever else fails because of it."""
    return bool(_raised)


def _take_over() -> None:
    """Replace the handlers that are written in Python by ours."""
    global _taken_by
    _taken_by = threading.get_ident()
    for number in WATCHED:
        handler = signal.getsignal(number)
        if callable(handler):
            _handlers[number] = handler
            signal.signal(number, _note)


def _give_back() -> None:
    """Restore the program's handlers, except where it has set another one meanwhile."""
    for number, handler in _handlers.items():
        if signal.getsignal(number) is _note:
            signal.signal(number, handler)
    _handlers.clear()


def _forked() -> None:
    """Restore the program's handlers in a new process that lacks the thread which replaced them."""
    global _caller, _looking, _place
    _looking = threading.Lock()
    if _handlers and _taken_by != threading.get_ident():
        _place = _caller = None
        waiting.clear()
        _raised.clear()
        _give_back()


os.register_at_fork(after_in_child=_forked)


def _note(number: int, frame: FrameType | None) -> None:
    """Record a signal; while a backend runs, call its handler now or soon."""
    if number not in waiting:
        waiting.append(number)
    place = _place
    if place is None:
        return
    if not _native.in_torch(place) and not _at_the_edge_of_a_block(frame):
        deliver()
    else:
        threading.Thread(target=_look_again, args=(number, place), daemon=True).start()


def _at_the_edge_of_a_block(frame: FrameType | None) -> bool:
    """Return whether the backend is entering or leaving a `with` block, which must not be interrupted."""
    while frame is not None and frame is not _caller:
        if frame.f_code.co_name in EDGES:
            return True
        frame = frame.f_back
    return False


def _look_again(number: int, place: int) -> None:
    """Have the main thread check again, if the backend still runs."""
    time.sleep(EVERY)
    with _looking:
        if _place == place and number in waiting:
            _thread.interrupt_main(signal.Signals(number))

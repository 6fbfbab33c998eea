"""Signals wait while a frame is compiled, until an exception can be raised.

What Python does for a signal (KeyboardInterrupt, for Ctrl-C) happens between any two instructions. A capture calls
torch's C++, which calls Python again, in functions that end the process where an exception comes out. So handlers are
called in between: at each instruction that is captured; in a backend, as soon as no call of torch's C++ is under way,
and no block of `with` is being entered or left, which an exception might leave half open; and in the end. Python calls
them in the main thread alone, so only that one is looked after.
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
EVERY = 0.001  # seconds between looks whether a backend can be interrupted

waiting: list[int] = []  # signals that have come; those who can be interrupted look whether it is empty
_handlers: dict[int, Handler] = {}  # the program's, while ours are in their places
_raised: list[BaseException] = []  # what handlers raised; it may be lost on its way, in a finalizer, say
_taken_by = 0  # the thread that has put ours there
_place: int | None = None  # where on the C stack the backend began that is at work, if one is
_caller: FrameType | None = None  # the frame that called it
_looking = threading.Lock()  # held while it is decided whether to look once more


class DeferredSignals:
    """A stretch of code in which signals wait. `error`: what a handler raised, and the region raises."""

    error: BaseException | None = None


@contextlib.contextmanager
def deferred() -> Iterator[DeferredSignals]:
    """Keep signals waiting in here, and call their handlers at the end, if not before.

    Raises at the end, too, what a handler has raised before and somebody has caught since.
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
            with contextlib.suppress(BaseException):  # it is among those raised
                deliver(mine)
        region.error = _raised[0] if _raised else None
        _raised.clear()
        if region.error is not None:
            raise region.error


@contextlib.contextmanager
def allowed() -> Iterator[None]:
    """Let signals through inside of `deferred`, for what may take long."""
    global _caller, _place
    if not _handlers or threading.current_thread() is not threading.main_thread():
        yield
        return
    if waiting:
        deliver()
    outer = _place, _caller
    _place, _caller = _native.stack_place(), sys._getframe(2)  # who called __enter__
    try:
        yield
    finally:
        with _looking:
            _place, _caller = outer


def deliver(handlers: dict[int, Handler] | None = None) -> None:
    """Call the handlers of the signals that have come; they may raise."""
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
    """Return whether a handler has raised something: it goes to the program, whatever else fails because of it."""
    return bool(_raised)


def _take_over() -> None:
    """Put ours in the places of the handlers that are written in Python."""
    global _taken_by
    _taken_by = threading.get_ident()
    for number in WATCHED:
        handler = signal.getsignal(number)
        if callable(handler):
            _handlers[number] = handler
            signal.signal(number, _note)


def _give_back() -> None:
    """Put the program's handlers back, but where it has set another meanwhile."""
    for number, handler in _handlers.items():
        if signal.getsignal(number) is _note:
            signal.signal(number, handler)
    _handlers.clear()


def _forked() -> None:
    """Give back what the main thread had taken over, where a new process does not have that thread."""
    global _caller, _looking, _place
    _looking = threading.Lock()
    if _handlers and _taken_by != threading.get_ident():
        _place = _caller = None
        waiting.clear()
        _raised.clear()
        _give_back()


os.register_at_fork(after_in_child=_forked)


def _note(number: int, frame: FrameType | None) -> None:
    """Remember a signal; while a backend is at work, call its handler, now or soon."""
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
    """Return whether the backend is entering or leaving a block of `with`: an error there might leave the block half
    open.
    """
    while frame is not None and frame is not _caller:
        if frame.f_code.co_name in EDGES:
            return True
        frame = frame.f_back
    return False


def _look_again(number: int, place: int) -> None:
    """Have the main thread decide once more, if it is still there."""
    time.sleep(EVERY)
    with _looking:
        if _place == place and number in waiting:
            _thread.interrupt_main(signal.Signals(number))

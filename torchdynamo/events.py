"""Record what the compiler did, as plain data in a bounded ring: logs, reports and traces are made from it.

Events come from paths that take milliseconds anyway. A hit makes none: entries count theirs, and a report reads the
counts when somebody asks. An event holds no tensor, module, graph, guard or frame; code is held weakly, texts are cut.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Literal
from weakref import ref

Kind = Literal["compile", "break", "recompile", "skip", "fallback", "limit", "cache", "tuning", "error"]
LONGEST = 2000
"""Characters of an event's text."""
KEPT = 1024
"""Events in the ring; older ones are only counted."""
PLACES = 8192
"""Kinds and places that are counted; those met first are forgotten first."""


@dataclass(frozen=True)
class Place:
    """A place in a program."""

    filename: str
    line: int
    function: str
    end_line: int | None = None
    column: int | None = None
    end_column: int | None = None


@dataclass(frozen=True)
class Event:
    """Something that the compiler did or left, with what is known of it. Times are seconds, of `time.perf_counter`."""

    kind: Kind
    place: Place
    text: str = ""
    hint: str = ""
    reason: str = ""
    """The id of a row in core/reasons.py."""
    chain: tuple[Place, ...] = ()
    """The calls that led to the place, outermost first."""
    graph: str = ""
    part_of: str = ""
    """The function, as graphs name it, whose frame calls what was compiled: the body of a loop, say."""
    backend: str = ""
    operators: int = 0
    symbols: tuple[tuple[str, str, int | None, int | None], ...] = ()
    """(name, source, least, most) of the sizes and numbers that may differ in the next call of a graph."""
    source: str = ""
    old: str = ""
    new: str = ""
    """Change that led to a recompile: of what, from which value and to which."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase of the compiler, each without those inside of it."""
    parent: int = 0
    """The number of the event that this is a part of; 0 for none."""
    at_call: bool = False
    """True if a frame ended before a call that leads to the break's place, so that the callee may have it again."""
    code: ref[CodeType] | None = None
    """The user's code that was compiled, as long as it lives; or a continuation of it."""
    made: ref[CodeType] | None = None
    """The code that runs instead: an entry of `code` has it as long as it is in use."""
    stored: str = ""
    """"hit" for a graph that another process had compiled and stored."""
    number: int = field(default_factory=itertools.count(1).__next__)
    ended: float = field(default_factory=time.perf_counter)
    thread: int = field(default_factory=threading.get_ident)
    process: int = field(default_factory=os.getpid)

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The kind, reason, file and line: events with the same ones count as one."""
        return self.kind, self.reason, self.place.filename, self.place.line


class _Record:
    """The events of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a finalizer may run tensor code, and so compile, at any allocation
        self.clear()

    def clear(self) -> None:
        self.ring: deque[Event] = deque(maxlen=KEPT)
        self.counts: Counter[tuple[str, str, str, int]] = Counter()
        self.skips: Counter[tuple[str, Place]] = Counter()


_record = _Record()
os.register_at_fork(after_in_child=_record.__init__)  # type: ignore[misc]
listeners: list[Callable[[Event, int], None]] = []
"""Called with each event and how many of its key there were so far, that one included."""


def record(kind: Kind, place: Place, text: str = "", **facts: Any) -> Event:
    """Record an event and tell the listeners. facts: further fields of `Event`."""
    event = Event(kind, place, text[:LONGEST], **facts)
    with _record.lock:
        _record.ring.append(event)
        _record.counts[event.key] += 1
        count = _record.counts[event.key]
        if len(_record.counts) > PLACES:
            del _record.counts[next(iter(_record.counts))]
    for listener in list(listeners):
        listener(event, count)
    return event


@contextmanager
def collecting() -> Iterator[list[Event]]:
    """Collect the events of this thread in a list during the block."""
    found: list[Event] = []
    thread = threading.get_ident()

    def collect(event: Event, _: int) -> None:
        if event.thread == thread:
            found.append(event)

    listeners.append(collect)
    try:
        yield found
    finally:
        listeners.remove(collect)


def recent() -> list[Event]:
    """Return the events in the ring, the oldest first."""
    with _record.lock:
        return list(_record.ring)


def count(event: Event) -> int:
    """Return how many events of this kind and reason there were at this place."""
    return _record.counts[event.key]


def skipped(reason: str, place: Place) -> None:
    """Count a function that is left to Python by a rule: the standard library, no tensors, ..."""
    with _record.lock:
        if len(_record.skips) < KEPT:
            _record.skips[reason, place] += 1


def skips() -> list[tuple[str, Place]]:
    """Return (reason, place) of the functions that are left to Python by a rule."""
    with _record.lock:
        return list(_record.skips)


def clear() -> None:
    """Forget all events."""
    with _record.lock:
        _record.clear()


# ---- how long the phases of the compiler take ----------------------------------------------------------------------


class _Clock(threading.local):
    """The phases that this thread is in."""

    seconds: dict[str, float] | None = None
    phase = ""
    since = 0.0


_clock = _Clock()
_phases: dict[int, str] = {}  # of each thread that compiles


def _turn_to(phase: str) -> str:
    """Charge the time since the last turn to the phase that ends or is interrupted, and return that."""
    now, before = time.perf_counter(), _clock.phase
    if before and _clock.seconds is not None:
        _clock.seconds[before] = _clock.seconds.get(before, 0.0) + now - _clock.since
    _clock.phase, _clock.since = phase, now
    if phase:
        _phases[threading.get_ident()] = phase
    else:
        _phases.pop(threading.get_ident(), None)
    return before


def phase_of(thread: int) -> str:
    """Return the phase of the compilation that a thread is in; "" if it is in none."""
    return _phases.get(thread, "")


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Charge the time of the block to a phase of the compilation under way; inner phases are not counted twice."""
    before = _turn_to(name)
    try:
        yield
    finally:
        _turn_to(before)


@contextmanager
def timing() -> Iterator[dict[str, float]]:
    """Begin a compilation: its phases add up their seconds in the dict. One inside of another has its own."""
    outer, before = _clock.seconds, _turn_to("")
    _clock.seconds = found = dict[str, float]()
    try:
        yield found
    finally:
        _turn_to(before)
        _clock.seconds = outer


def seconds() -> dict[str, float]:
    """Return the seconds of the compilation under way so far, by phase."""
    _turn_to(_clock.phase)
    return dict(_clock.seconds or {})

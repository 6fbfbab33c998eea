"""Time the calls of compiled graphs while somebody asks: when each began and ended, and what was between them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from torchdynamo import _native

KEPT = 20_000
PREFIX = "torchdynamo: "
"""Prefix of the names of graphs' ranges in a profile."""


class GraphCall(NamedTuple):
    """One call of a compiled graph. Times are seconds, of `time.perf_counter`."""

    graph: str
    started: float
    ended: float
    thread: int


class GraphCalls:
    """The newest calls of compiled graphs, of all threads."""

    def __init__(self) -> None:
        self.calls: deque[GraphCall] = deque(maxlen=KEPT)

    def __call__(self, label: str, started: int, ended: int) -> None:
        self.calls.append(GraphCall(label.removeprefix(PREFIX), started / 1e9, ended / 1e9, threading.get_ident()))


@contextmanager
def timed_graphs() -> Iterator[deque[GraphCall]]:
    """Collect the calls of compiled graphs during the block. Of nested blocks the inner one sees its calls alone."""
    calls = GraphCalls()
    prior = _native.watch_graphs(calls)
    try:
        yield calls.calls
    finally:
        _native.watch_graphs(prior)

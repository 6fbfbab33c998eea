"""Measure runs in turn, and say which of them is the best."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from torchdynamo.backends.ensemble.member import Member

WARM_UPS = 2
IN_A_ROW = 3
"""Runs of a contender before the next one's turn. The first of them is not counted: it finds caches and threads as the
one before has left them, where a winner finds them as it left them itself.
"""
MEASURED = 7
"""Counted runs of each contender, at least, after its warm-ups."""
SECONDS = 0.02
MOST = 150
"""Short runs are repeated until they have taken so many seconds, or until there were so many of them."""
HOPELESS = 1.5
"""A contender that is this many times slower than the fastest after two counted runs is out."""
GAIN = 1.02
"""How many times faster than eager a member must be, and within which members are level."""
OWN_THREADS = 1.1
"""How many times faster than others a member must be that computes on threads of its own: these compete with torch's
for the cores as soon as the program computes anything else, which measuring one graph does not show.
"""

Run = Callable[..., Any]


class Timing(NamedTuple):
    """Seconds per run."""

    median: float
    lower: float
    upper: float
    runs: int


def timing_of(seconds: Sequence[float]) -> Timing:
    """Return the median and the quartiles of measured seconds."""
    if len(seconds) < 2:
        return Timing(seconds[0], seconds[0], seconds[0], 1)
    lower, median, upper = statistics.quantiles(seconds, n=4, method="inclusive")
    return Timing(median, lower, upper, len(seconds))


def is_enough(seconds: Sequence[float]) -> bool:
    """Return whether a contender was measured often and long enough."""
    return len(seconds) >= MOST or (len(seconds) >= MEASURED and sum(seconds) >= SECONDS)


class Tournament:
    """Contenders that take turns; who is far behind drops out early, so that little time is lost on losers."""

    def __init__(self, names: Sequence[str]) -> None:
        self.seconds: dict[str, list[float]] = {name: [] for name in names}
        self.runs = dict.fromkeys(names, 0)
        self.out: set[str] = set()
        self.turns = itertools.cycle(names)
        self.turn: list[str] = []  # runs that are left of this turn

    @property
    def left(self) -> list[str]:
        """The contenders that are not out."""
        return [name for name in self.seconds if name not in self.out]

    def drop(self, name: str) -> None:
        """Take a contender out."""
        self.out.add(name)

    def next(self) -> str:
        """Return the name of the contender that runs next."""
        if not self.turn or self.turn[0] in self.out:
            self.turn = [next(name for name in self.turns if name not in self.out)] * IN_A_ROW
        return self.turn.pop()

    def note(self, name: str, seconds: float) -> None:
        """Count a run of a contender, and drop whoever has fallen far behind."""
        self.runs[name] += 1
        if self.runs[name] <= WARM_UPS or self.runs[name] % IN_A_ROW == 1:
            return
        self.seconds[name].append(seconds)
        known = {each: statistics.median(self.seconds[each]) for each in self.left if len(self.seconds[each]) >= 2}
        fastest = min(known.values(), default=0.0)
        self.out.update(each for each, median in known.items() if median > HOPELESS * fastest)

    @property
    def is_over(self) -> bool:
        """Return whether each contender that is left was measured often enough."""
        return all(is_enough(self.seconds[name]) for name in self.left)

    def timings(self) -> dict[str, Timing]:
        """Return the timing of each contender that was measured."""
        return {name: timing_of(found) for name, found in self.seconds.items() if found}


def best(timings: Mapping[str, Timing], members: Mapping[str, Member], floor: str = "eager") -> str:
    """Return the name of the winner: the fastest, but `floor` unless that is beaten by 2%.

    Of those within 2% of the fastest, the one of the lowest rank wins. A contender only beats the floor if its lower
    quartile does, too. members: those that timings may name; one with threads of its own has to be 10% better.
    """
    base = timings.get(floor)
    weighed = {
        name: each.median * (OWN_THREADS if name in members and members[name].has_threads else 1)
        for name, each in timings.items()
        if name != floor and (base is None or each.lower < base.lower)
    }
    able = {name: median for name, median in weighed.items() if base is None or median * GAIN < base.median}
    if not able:
        return floor
    fastest = min(able.values())
    level = [name for name, median in able.items() if median <= fastest * GAIN]
    return min(level, key=lambda name: members[name].rank if name in members else 0)


class Stopwatch:
    """Times runs that are told apart by name: wall time on a CPU, the stream's own time on a GPU."""

    def __init__(self, cuda: bool) -> None:
        self.cuda = cuda
        self.pending: list[tuple[str, Any, Any]] = []
        self.done: list[tuple[str, float]] = []

    def run(self, name: str, run: Run, args: Sequence[Any]) -> Any:
        """Return what the run returns. Its time is among those that `finished` gives, later if a GPU is at work."""
        if not self.cuda:
            started = time.perf_counter_ns()
            result = run(*args)
            self.done.append((name, (time.perf_counter_ns() - started) / 1e9))
            return result
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        result = run(*args)
        end.record()
        self.pending.append((name, start, end))
        return result

    def finished(self) -> list[tuple[str, float]]:
        """Return the names and seconds of the runs that have ended, without waiting for any; each is given once."""
        while self.pending and self.pending[0][2].query():
            name, start, end = self.pending.pop(0)
            self.done.append((name, start.elapsed_time(end) / 1e3))
        found, self.done = self.done, []
        return found

    def wait(self) -> None:
        """Wait for the GPU, so that all runs have ended."""
        if self.cuda:
            torch.cuda.synchronize()


def in_turn(runs: Mapping[str, Callable[[], object]], seconds: float, cuda: bool = False) -> dict[str, Timing]:
    """Call each of these in turn until all were measured often enough, for about so many seconds at most.

    Each is measured once at least. Returns the timings by name.
    """
    contest, watch = Tournament(list(runs)), Stopwatch(cuda)
    end = time.monotonic() + seconds
    while not contest.is_over and (time.monotonic() < end or not all(contest.seconds[name] for name in contest.left)):
        name = contest.next()
        watch.run(name, runs[name], ())
        watch.wait()
        for each, taken in watch.finished():
            contest.note(each, taken)
    return contest.timings()

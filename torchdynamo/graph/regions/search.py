"""Find repetition in a sequence of labels: windows that recur at a constant distance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

TRIED = 6  # so many distances are examined in detail: those at which the most labels recur


class Repetition(NamedTuple):
    """`times` windows of `length` equal labels, `period` apart, the first of which begins at `first` to `last`."""

    first: int
    last: int
    length: int
    period: int
    times: int

    @property
    def covered(self) -> int:
        return self.length * self.times

    @property
    def rank(self) -> tuple[int, int]:
        return self.covered, self.last - self.first


def repetitions(labels: Sequence[int], least_length: int, least_count: int) -> Iterator[Repetition]:
    """Yield repetitions of at least this length and count, those that cover most first, one for each distance.

    A longer distance must cover 2% more than a shorter one, so that a block is never two of the program's.
    """
    found = [
        best
        for period in sorted(distances(labels, least_length, least_count))
        if (best := largest(recurring(labels, period), period, least_length, least_count)) is not None
    ]
    yield from sorted(found, key=lambda each: -each.covered / 1.02 ** sum(o.period < each.period for o in found))


def distances(labels: Sequence[int], least_length: int, least_count: int) -> list[int]:
    """Return the distances at which the most labels recur."""
    row = torch.tensor(labels)
    counts = [
        (int((row[:-period] == row[period:]).sum()), -period)
        for period in range(least_length, len(labels) // least_count + 1)
    ]
    return [-period for equal, period in sorted(counts, reverse=True)[:TRIED] if equal >= least_length]


def recurring(labels: Sequence[int], period: int) -> list[int]:
    """Return how many times in a row the label of each position recurs at this distance."""
    counts = [0] * len(labels)
    for at in range(len(labels) - period - 1, -1, -1):
        if labels[at] == labels[at + period]:
            counts[at] = counts[at + period] + 1
    return counts


def largest(counts: Sequence[int], period: int, least_length: int, least_count: int) -> Repetition | None:
    """Return the repetition that covers most, of windows no longer than the distance; None if none is large enough.

    It is the largest rectangle under a histogram, of limited width.
    """
    best: Repetition | None = None
    open_: list[tuple[int, int]] = []  # (where it begins, height), in ascending order of both
    for at, height in enumerate([*counts, 0]):
        begin = at
        while open_ and open_[-1][1] >= height:
            begin, level = open_.pop()
            length = min(at - begin, period)
            if length >= least_length and level + 1 >= least_count:
                made = Repetition(begin, at - length, length, period, level + 1)
                if best is None or made.rank > best.rank:
                    best = made
        if height:
            open_.append((begin, height))
    return best

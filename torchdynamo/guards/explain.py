"""Explain which guard failed: what was there, what is there now, and which line relies on it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from torchdynamo import _native
from torchdynamo.core.source import Guard, Roots, Source
from torchdynamo.guards.kind import MISSING, GuardDifference, read
from torchdynamo.guards.kinds import KINDS

# Kinds whose text names its subject itself.
WITHOUT_PLACE = {"GLOBAL_STATE": "torch's state", "NUMBERS": ""}


_UNNAMED = re.compile(r"\b__stack\d+")


def has_name(source: Source) -> bool:
    """Return whether the program has a name for a source: it has none for a value under way at a graph break."""
    return _UNNAMED.search(str(source)) is None


def named(source: Source) -> str:
    """Return a source as messages call it."""
    return _UNNAMED.sub("<intermediate value>", str(source))


class FailedGuard(NamedTuple):
    """A guard that does not hold for a frame, and the difference."""

    guard: Guard
    change: GuardDifference

    def __str__(self) -> str:
        place, change = self.guard.position, self.change
        what = WITHOUT_PLACE.get(self.guard.kind, named(self.guard.source))
        what = f"{what}{change.part}: " if what or change.part else ""
        line = f", needed by {place.filename}:{place.line}" if place is not None else ""
        return f"{what}{change.old} -> {change.new} ({self.guard.kind}{line})"


def first_failure(guards: Iterable[Guard], roots: Roots) -> FailedGuard | None:
    """Return the first guard that does not hold for a frame; None if all do."""
    for guard in guards:
        kind = KINDS[guard.kind]
        value = read(guard.source, roots)
        if value is MISSING and guard.kind != "UNBOUND":
            return FailedGuard(guard, GuardDifference("", "there", "not there"))
        if not kind.holds(value, guard.arg, roots):
            return FailedGuard(guard, kind.why(value, guard.arg, roots))
    return None


COSTS = {0: "with its owner", -1: "each call", -2: "metadata"}


class Guards(list[Guard]):
    """A list of an entry's guards; as text, one per line, with the cost of each per hit and the
    line that relies on it.
    """

    def __init__(self, guards: Iterable[Guard], program: _native.GuardProgram) -> None:
        super().__init__(guards)
        self.program = program

    def __str__(self) -> str:
        return "\n".join(line(guard, cost) for guard, cost in zip(self, self.program.costs(), strict=True))


def line(guard: Guard, cost: int) -> str:
    """Return a guard as a line such as `self.weight TENSOR_MATCH torch.float32 cpu [4, 4]  [metadata]  model.py:12`."""
    subject = WITHOUT_PLACE.get(guard.kind, str(guard.source))
    what = f"{subject} {guard.kind} {KINDS[guard.kind].describe(guard.arg)}".strip()
    paid = COSTS.get(cost) or f"{cost} word{'s' if cost > 1 else ''}"
    place = f"  {guard.position.filename}:{guard.position.line}" if guard.position is not None else ""
    return f"{what}  [{paid}]{place}"

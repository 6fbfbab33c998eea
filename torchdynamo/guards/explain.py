"""Which guard failed, said in the user's words: what it was, what it is now, and which line needs it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torchdynamo.capture.source import Guard, Roots
from torchdynamo.guards.kind import MISSING, Change, read
from torchdynamo.guards.kinds import KINDS


class Failure(NamedTuple):
    """A guard that does not hold for a frame, and how the facts changed."""

    guard: Guard
    change: Change

    def __str__(self) -> str:
        place, change = self.guard.position, self.change
        what = "torch's state" if self.guard.kind == "GLOBAL_STATE" else f"{self.guard.source}"
        line = f", needed by {place.filename}:{place.line}" if place is not None else ""
        return f"{what}{change.part}: {change.old} -> {change.new} ({self.guard.kind}{line})"


def first_failure(guards: Iterable[Guard], roots: Roots) -> Failure | None:
    """The first guard that does not hold for a frame; None if all do."""
    for guard in guards:
        kind = KINDS[guard.kind]
        value = read(guard.source, roots)
        if value is MISSING and guard.kind != "UNBOUND":
            return Failure(guard, Change("", "there", "not there"))
        if not kind.holds(value, guard.arg, roots):
            return Failure(guard, kind.why(value, guard.arg, roots))
    return None

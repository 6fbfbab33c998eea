"""Follow what has become of one member for one graph: declined, waiting, built, rejected, measured."""

from __future__ import annotations

import time

from torchdynamo.backends.ensemble.constants import AtThreads, FrozenRun, count_bytes
from torchdynamo.backends.ensemble.database import Row
from torchdynamo.backends.ensemble.isolation import IsolatedTrial
from torchdynamo.backends.ensemble.measure import Timing
from torchdynamo.backends.ensemble.member import Declined, Member, Run, why_declined
from torchdynamo.backends.ensemble.reference import ProbeKind, Reference
from torchdynamo.backends.ensemble.settings import Settings
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.backends.ensemble.validation import Differs, validate
from torchdynamo.hook import interrupts

WAITING, BUILT, DECLINED, REJECTED, FAILED, UNKNOWN = "waiting built declined rejected failed unknown".split()
"""States of a candidate. Waiting: the graph has not cost enough yet. Rejected: its results differ. Failed: it raised.
Unknown: of a graph that was tuned before, when nothing but the winner is built."""


class Candidate:
    """One member in the competition for one graph."""

    def __init__(self, member: Member, subgraph: Subgraph, settings: Settings) -> None:
        self.member = member
        self.name = member.name
        self.settings = settings
        reason = why_declined(member, subgraph) or self._too_large(subgraph)
        self.state = DECLINED if reason else WAITING
        self.reason = reason or ""
        builds = 2 if member.isolated else 1
        self.cost = builds * member.cost * max(len(subgraph.nodes), 10) / 100  # seconds of run time before it is built
        self.trial: IsolatedTrial | None = None
        self.build_seconds = 0.0
        self.error = 0.0
        self.bytes = 0
        self.timing: Timing | None = None
        self.run: Run | None = None

    def _too_large(self, subgraph: Subgraph) -> str | None:
        if not (self.member.makes_constants and subgraph.static and self.settings.memory):
            return None
        needed = count_bytes(subgraph) / 2**20
        if needed <= self.settings.memory:
            return None
        return f"its constants take {needed:.0f} MiB, and options['memory'] allows {self.settings.memory:.0f}"

    def is_ready(self, subgraph: Subgraph) -> bool:
        """Return whether it may be built now. A member that is isolated must pass its trial first, begun here."""
        if not self.member.isolated:
            return True
        if self.trial is None:
            self.trial = IsolatedTrial(self.member, subgraph)
        if not self.trial.is_over:
            return False
        outcome = self.trial.outcome
        if outcome.state != BUILT:
            self.drop(outcome.state, outcome.reason)
        return outcome.state == BUILT

    def build(self, subgraph: Subgraph, reference: Reference, changed: Run) -> None:
        """Build the graph and try it against eager. Whatever fails is the reason that `explain` shows.

        changed: called with all inputs where a constant or the number of threads is not what it was.
        Raises KeyboardInterrupt and the like only.
        """
        started = time.perf_counter()
        try:
            run = self.whole(self.member.build(subgraph), subgraph, changed)
            self.build_seconds = time.perf_counter() - started
            self.error = validate(reference, run, self.untried())
        except Declined as declined:
            self.drop(DECLINED, str(declined))
        except Differs as difference:
            self.drop(REJECTED, str(difference))
        except Exception as error:
            if interrupts.came():
                raise
            self.drop(FAILED, in_short(error))
        else:
            self.state, self.reason, self.run = BUILT, "", run
        self.build_seconds = self.build_seconds or time.perf_counter() - started

    def untried(self) -> list[ProbeKind]:
        """Return the kinds of inputs that this member need not be tried on."""
        kinds: list[ProbeKind] = [] if self.settings.nan_exact else ["special"]
        return [*kinds, "index"] if self.member.checks_indices else kinds

    def whole(self, run: Run, subgraph: Subgraph, changed: Run) -> Run:
        """Return a run that takes all inputs of the graph."""
        if self.member.makes_constants and subgraph.static:
            self.bytes = count_bytes(subgraph)
            run = FrozenRun(run, subgraph, changed)
        return AtThreads(run, changed) if self.member.has_threads else run

    @property
    def may_be_outdated(self) -> bool:
        """Return whether what was built rests on constants or on a number of threads."""
        return self.run is not None and (bool(self.bytes) or self.member.has_threads)

    def drop(self, state: str, reason: str) -> None:
        """Take the candidate out of the competition, for a reason."""
        self.state, self.reason, self.run = state, reason, None

    def measured(self) -> Row:
        """Return what the database keeps."""
        return Row(self.name, self.state, self.reason, self.build_seconds, self.timing, self.error, self.bytes)

    def row(self, winner: str | None, base: Timing | None) -> tuple[str, str, str, str]:
        """Return what `explain` shows: name, state, time against eager's `base`, and the reason or the error."""
        state = "winner" if self.name == winner else self.state
        speed = ""
        if self.timing is not None:
            over = f" ({base.median / self.timing.median:.2f}x)" if base is not None else ""
            speed = f"{self.timing.median * 1e3:.3f} ms{over}"
        note = self.reason or (
            f"built in {self.build_seconds:.1f} s, error {self.error:.1e}" if self.state == BUILT else ""
        )
        return self.name, state, speed, note


def in_short(error: BaseException) -> str:
    """Return type and message of an exception in one line of at most 300 characters."""
    lines = str(error).strip().splitlines()
    return f"it raises {type(error).__name__}: {' '.join(lines)}"[:300]

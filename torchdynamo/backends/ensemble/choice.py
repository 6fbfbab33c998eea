"""Choose the fastest correct member for one graph while the program runs, and put it in the graph's place.

Nothing is built before the graph has cost about what building costs: the time lost is at most twice that of the best
choice in hindsight (the ski-rental argument). Built members are tried against eager before any of their results is
handed out, then real calls are served and timed in turn. A winner is called directly from then on.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

from torchdynamo import _native, events
from torchdynamo.backends.ensemble import measure
from torchdynamo.backends.ensemble.candidate import BUILT, DECLINED, FAILED, UNKNOWN, WAITING, Candidate, in_short
from torchdynamo.backends.ensemble.constants import facts_of
from torchdynamo.backends.ensemble.database import Row, database
from torchdynamo.backends.ensemble.identity import graph_hash
from torchdynamo.backends.ensemble.measure import Stopwatch, Timing, Tournament
from torchdynamo.backends.ensemble.member import Member, Run
from torchdynamo.backends.ensemble.reference import Reference, gradients_of
from torchdynamo.backends.ensemble.settings import Settings
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.backends.preserve import leaves_inputs_alone, state_restored
from torchdynamo.backends.replaceable import Replaceable
from torchdynamo.backends.verify import copied
from torchdynamo.core.reasons import explained
from torchdynamo.errors import FallbackWarning
from torchdynamo.events import Place
from torchdynamo.graph import torch_compat
from torchdynamo.graph.node_places import place_of
from torchdynamo.hook.compile_lock import turn
from torchdynamo.hook.user_warnings import warn_user

log = logging.getLogger("torchdynamo.tuning")
EAGER = "eager"
QUIET = 16  # calls with unchanged constants, doubled after each rebuild, before constants are made again
MOST_REBUILDS = 6
NEVER = b"never"  # facts that no constants have
TRIAL_SECONDS = 10.0  # of measuring all members of a graph at once

choices: weakref.WeakSet[Choice] = weakref.WeakSet()
"""Every choice that is alive in this process."""


class Choice(Replaceable):
    """One graph and the members that compete for it. Calls go by `now`, which ends up being the winner itself."""

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        members: Sequence[Member],
        settings: Settings,
        captured: torch.fx.GraphModule | None = None,
    ) -> None:
        """Begin with eager. captured: the graph with symbols, where `gm` is that at certain sizes."""
        super().__init__()
        self.gm = gm
        self.captured = gm if captured is None else captured
        self.members = members
        self.settings = settings
        self.eager: Run = gm.forward
        self.candidates: dict[str, Candidate] = {}
        self.winner: str | None = None
        self.lock = threading.Lock()
        self.spent = 0.0  # seconds in this graph
        self.rebuilds = 0
        self.quiet = 0  # calls since constants changed
        self.hash: str | None = None  # of the graph, in the database
        self.facts = b""  # the constants as they were when they last changed
        self.eager_timing: Timing | None = None
        self.trains = self.cuda = False
        self.tournament: Tournament | None = None
        self.leader = EAGER  # serves while others wait to be built
        self.watch = Stopwatch(False)
        self.now: Run = self.in_turns
        self.when_chosen: list[Callable[[], object]] = []  # called once there is a winner
        choices.add(self)

    def __call__(self, *args: Any) -> Any:
        return self.now(*args)

    def start(self, example_inputs: Sequence[Any]) -> None:
        """Ask each member whether it takes the graph; with tune="now", build and measure all of them.

        example_inputs: of the call that the graph is compiled for.
        """
        subgraph = self.subgraph(example_inputs)
        self.trains, self.cuda = subgraph.wants_gradients, any(each.is_cuda for each in subgraph.tensors)
        self.watch = Stopwatch(self.cuda)
        for member in self.members:
            self.candidates[member.name] = Candidate(member, subgraph, self.settings)
        if not self.waiting():
            self.commit(EAGER)
        elif not self.recalled(subgraph) and self.settings.tune == "now":
            self.tune(subgraph)

    def recalled(self, subgraph: Subgraph) -> bool:
        """Commit to the member that was measured to be the best in another process; return whether there is one."""
        known = None if self.settings.members or subgraph.is_symbolic else database()
        self.hash = graph_hash(subgraph) if known is not None else None
        name = known.winner(self.hash) if known is not None and self.hash is not None else None
        if name is None or (name != EAGER and self.candidates[name].state != WAITING):
            return False
        if name != EAGER:
            self.make([self.candidates[name]], subgraph)
            if self.candidates[name].run is None:
                return False
        for each in self.waiting():
            each.drop(UNKNOWN, f"{name} was measured to be the best before")
        self.commit(name)
        return True

    def subgraph(self, inputs: Sequence[Any]) -> Subgraph:
        return Subgraph(self.gm, inputs, constants=self.settings.constants)

    def waiting(self) -> list[Candidate]:
        return [each for each in self.candidates.values() if each.state == WAITING]

    def built(self) -> dict[str, Run]:
        return {name: each.run for name, each in self.candidates.items() if each.run is not None}

    # ---- while the program runs ---------------------------------------------------------------------------------

    def in_turns(self, *args: Any) -> Any:
        """Serve a call by the member whose turn it is, and time it; build what the graph has paid for."""
        if _native.in_run_mode() or not self.lock.acquire(blocking=False):
            return self.eager(*args)
        try:
            if self.facts and not self.constants_rest(args):
                return self.eager(*args)
            due = [each for each in self.waiting() if each.cost <= self.spent]
            if due and not torch.are_deterministic_algorithms_enabled():
                self.build_ready(due, args)
            return self.timed(args)
        finally:
            self.lock.release()

    def timed(self, args: Sequence[Any]) -> Any:
        """Run the member whose turn it is, note its time, and end the competition if it is decided."""
        name = self.leader if self.tournament is None else self.tournament.next()
        result = self.watch.run(EAGER, self.eager, args) if name == EAGER else self.tried(name, args)
        for each, seconds in self.watch.finished():
            self.spent += seconds
            if self.tournament is not None and each in self.tournament.seconds:
                self.tournament.note(each, seconds)
        if self.tournament is not None and self.tournament.is_over:
            self.decide(self.tournament)
        return result

    def tried(self, name: str, args: Sequence[Any]) -> Any:
        """Run a member. If it raises where eager does not, it is out, and eager's result is returned."""
        run = self.built()[name]
        try:
            return self.watch.run(name, run, args)
        except Exception as error:
            if self.writes():  # whoever called knows what has been written to
                self.fail(name, error)
                raise
            result = self.eager(*args)
            self.fail(name, error)
            return result

    def writes(self) -> bool:
        return bool(self.subgraph(()).effects.mutated)

    def build_ready(self, due: Sequence[Candidate], args: Sequence[Any]) -> None:
        """Build those of these members that are ready, with this call's inputs as examples; let those that are right
        compete.
        """
        subgraph = self.subgraph(args)
        ready = [each for each in due if each.is_ready(subgraph)]
        if not ready and self.waiting():
            return  # for a trial in another process
        if ready:
            self.make(ready, subgraph)
        names = [name for name in self.candidates if self.candidates[name].state == BUILT]
        if self.trains and names:
            self.measure(subgraph)
        elif names:
            self.tournament = Tournament([EAGER, *names])
        elif not self.waiting():
            self.commit(EAGER)

    def make(self, some: Sequence[Candidate], subgraph: Subgraph) -> None:
        """Build and try members, leaving modes, generators and inputs alone; not while another thread compiles."""
        reference = Reference(subgraph)
        if reference.raises:
            return  # as the program's call will
        with turn(patience=0.0) as ours, torch_compat.without_saved_tensor_hooks():
            for each in some if ours else ():
                with state_restored(self.gm, subgraph.example_inputs, _careful):
                    each.build(subgraph, reference, self.outdated)
                log.info("%s: %s %s %s", self.gm.__class__.__name__, each.name, each.state, each.reason)

    def decide(self, tournament: Tournament) -> None:
        """Take the competition's result: commit if nobody else is to come, else let the best serve meanwhile."""
        self.note(tournament.timings())
        name = self.best()
        if not self.waiting():
            self.commit(name)
        else:
            self.leader, self.tournament = name, None

    def note(self, timings: dict[str, Timing]) -> None:
        self.eager_timing = timings.get(EAGER, self.eager_timing)
        for name, timing in timings.items():
            if name in self.candidates:
                self.candidates[name].timing = timing

    def best(self) -> str:
        """Return the name of the best of those that are built, by the times that are known."""
        timings = {
            name: each.timing
            for name, each in self.candidates.items()
            if each.run is not None and each.timing is not None
        }
        if self.eager_timing is not None:
            timings[EAGER] = self.eager_timing
        return measure.best(timings, {each.name: each for each in self.members})

    # ---- all at once ----------------------------------------------------------------------------------------------

    def tune(self, subgraph: Subgraph) -> None:
        """Build all members within the budget, measure them on copies of the inputs, and commit to the best."""
        end = time.monotonic() + self.settings.budget
        for each in self.waiting():
            each.is_ready(subgraph)  # trials in other processes begin
        for each in sorted(self.waiting(), key=lambda one: one.cost):
            if each.trial is not None:
                each.trial.wait(end - time.monotonic())
            if each.is_ready(subgraph) and time.monotonic() < end:
                self.make([each], subgraph)
            elif each.state == WAITING:
                each.drop(DECLINED, f"the budget of {self.settings.budget:.0f} s was used up")
        if self.built() or not self.waiting():
            self.measure(subgraph)

    def measure(self, subgraph: Subgraph) -> None:
        """Run all that are built in turn, with their backwards if gradients are wanted, and commit to the best."""
        runs = {EAGER: self.eager, **self.built()}
        written = bool(subgraph.effects.mutated)

        def trial(run: Run) -> Any:
            given = [copied(each) for each in subgraph.example_inputs] if self.trains or written else None

            def once() -> None:
                results = run(*(given or subgraph.example_inputs))
                if self.trains:
                    gradients_of(pytree.tree_leaves(results), given or ())

            return once

        with state_restored(self.gm, subgraph.example_inputs, _careful):
            trials = {name: trial(run) for name, run in runs.items()}
            self.note(measure.in_turn(trials, TRIAL_SECONDS, self.cuda))
        if not self.waiting():
            self.commit(self.best())

    # ---- afterwards -----------------------------------------------------------------------------------------------

    def commit(self, name: str) -> None:
        """Let a member serve all further calls, and free what the others have built."""
        self.winner, self.leader, self.tournament = name, EAGER, None
        run = self.eager if name == EAGER else self.built()[name]
        self.keep()
        for each in self.candidates.values():
            each.run = each.run if each.name == name else None
        self.tell(name)
        self.serve(run)
        waiting, self.when_chosen = self.when_chosen, []
        for call in waiting:
            call()

    def tell(self, name: str) -> None:
        """Record which member was chosen, at the line of the graph's first operator."""
        places = filter(None, map(place_of, self.gm.graph.nodes))
        place = next(places, Place("", 0, ""))
        seconds = {each.name: each.timing.median for each in self.candidates.values() if each.timing is not None}
        text = f"chose {name}; milliseconds: " + ", ".join(f"{each} {1e3 * s:.3g}" for each, s in seconds.items())
        events.record("tuning", place, text, backend=name)

    def keep(self) -> None:
        """Store what was measured, for other processes."""
        known = database()
        if known is None or self.hash is None or self.eager_timing is None:
            return
        rows = [Row(EAGER, BUILT, timing=self.eager_timing)]
        known.keep(self.hash, [*rows, *(each.measured() for each in self.candidates.values())])

    def serve(self, run: Run) -> None:
        self.now = run
        self.replace(run)

    def failed(self, error: BaseException) -> None:
        """Drop the winner, which has raised where eager did not."""
        if self.winner not in (None, EAGER):
            self.fail(self.winner, error, told=True)

    def fail(self, name: str, error: BaseException, told: bool = False) -> None:
        """Drop a member that has raised where eager did not, and warn. told: the program has been warned."""
        self.candidates[name].drop(FAILED, f"in a later call {in_short(error)}")
        if not told:
            what = f"{type(error).__name__}: {error}"
            text = f"ensemble: member {name!r} raised {what}; eager serves its calls from now on"
            warn_user(explained(text, "graph failed"), FallbackWarning)
        if self.leader == name:
            self.leader = EAGER
        if self.tournament is not None and name in self.tournament.seconds:
            self.tournament.drop(name)
            if self.tournament.left in ([], [EAGER]) and not self.waiting():
                self.commit(EAGER)
            elif not self.tournament.left:
                self.tournament = None
        elif self.winner == name:
            self.commit(EAGER)

    # ---- what was built is out of date ------------------------------------------------------------------------------

    def outdated(self, *args: Any) -> Any:
        """Run eagerly a call whose constants or number of threads are not those that were built in.

        Members are built again once the constants have been the same for a number of calls, which doubles each time.
        """
        if not _native.in_run_mode() and self.lock.acquire(blocking=False):
            try:
                if not self.facts:
                    self.reopen()
            finally:
                self.lock.release()
        return self.eager(*args)

    def reopen(self) -> None:
        """Compete again, not without end."""
        self.leader, self.tournament = EAGER, None
        for each in self.candidates.values():
            if each.may_be_outdated and self.rebuilds < MOST_REBUILDS:
                each.state, each.run, each.cost = WAITING, None, self.spent + each.build_seconds
            elif each.may_be_outdated:
                each.drop(DECLINED, f"its constants changed {self.rebuilds + 1} times")
        self.rebuilds += 1
        if not self.waiting():
            self.commit(EAGER)
            return
        self.winner, self.facts, self.quiet = None, NEVER, 0
        self.serve(self.in_turns)

    def constants_rest(self, args: Sequence[Any]) -> bool:
        """Return whether constants have not changed for a number of calls; count this call."""
        try:
            found = facts_of(args, self.subgraph(args).static)
        except (ValueError, TypeError):
            return False
        self.quiet = self.quiet + 1 if found == self.facts else 0
        self.facts = found
        if self.quiet < QUIET * 2**self.rebuilds:
            return False
        self.facts = b""
        return True

    # ---- what became of it ----------------------------------------------------------------------------------------

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return a row for each member: name, state, time, and the reason why it was declined or dropped."""
        base = self.eager_timing
        own = f"{base.median * 1e3:.3f} ms" if base is not None else ""
        first = (EAGER, "winner" if self.winner == EAGER else "", own, "")
        return [first, *(each.row(self.winner, base) for each in self.candidates.values())]


@leaves_inputs_alone
def _careful(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> None:
    """Stand for members, which are tried on copies of what a graph writes to."""


def _forked() -> None:
    """Leave graphs to eager in a forked process: threads of runtimes do not exist there, and locks may be held."""
    for each in list(choices):
        each.lock = threading.Lock()
        if each.winner != EAGER and each.candidates:
            each.hash = None  # what this process does is not for others to know
            for candidate in each.candidates.values():
                candidate.drop(DECLINED, "the process was forked")
            each.commit(EAGER)


os.register_at_fork(after_in_child=_forked)

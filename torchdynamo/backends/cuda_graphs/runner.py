"""Decide for each call of a compiled graph whether it runs plain, is recorded, or replays.

The first calls at given sizes run plain and are watched: which inputs stay where they are, and which results outlive
the next call. Then a call is recorded: a capture computes nothing, so the call that records launches it once. Later
calls replay. A call that cannot replay without writing over something that is in use runs plain.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from torchdynamo import _native
from torchdynamo.backends.cuda_graphs import limits
from torchdynamo.backends.cuda_graphs.lanes import Lane, Lanes
from torchdynamo.backends.cuda_graphs.recording import Plan, Recording
from torchdynamo.backends.cuda_graphs.slots import address_of, share_memory
from torchdynamo.errors import FallbackWarning
from torchdynamo.hook.user_warnings import warn_user

# Tells by the kind of a graph that it must run plain now.
BLOCKED: dict[str, Callable[[], Any]] = {
    "backward": torch._C._autograd._get_current_graph_task_keep_graph,
    "forward": functools.partial(torch._C._autograd._top_saved_tensors_default_hooks, False),
}
MOST_WATCHED = 256  # combinations of sizes; beyond, watching begins anew


class WatchedCalls:
    """Observations of plain calls at the same sizes."""

    def __init__(self) -> None:
        self.calls = 0
        self.addresses: list[int | None] = []
        self.staying: set[int] = set()  # positions of inputs that were at one address in all calls
        self.outliving: set[int] = set()  # positions of results that were alive at the next call
        self.outliving_two = False  # one was alive at the call after that
        self._results: tuple[list[int], Any] | None = None
        self._earlier: Any = None  # lease of the results before these

    def see_inputs(self, inputs: Sequence[Any]) -> None:
        """Compare addresses with the last call's, and look which of its results are alive."""
        addresses = [each.data_ptr() if isinstance(each, torch.Tensor) else None for each in inputs]
        pairs = enumerate(zip(addresses, self.addresses or addresses, strict=True))
        same = {at for at, (one, other) in pairs if one is not None and one == other}
        self.staying = same if not self.addresses else self.staying & same
        self.addresses = addresses
        if self._results is not None:
            positions, lease = self._results
            self.outliving.update(positions[at] for at in _native.alive(lease))
        self.outliving_two |= self._earlier is not None and _native.is_alive(self._earlier)

    def see_results(self, results: Sequence[Any]) -> None:
        """Watch the results of a call, by weak references to their memory."""
        self.calls += 1
        positions = [at for at, each in enumerate(results) if is_strided(each)]
        self._earlier = self._results and self._results[1]
        self._results = positions, _native.watch([results[at] for at in positions])


def is_strided(value: Any) -> bool:
    """Return whether a value is a tensor with strides, and so with one piece of memory."""
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def sizes_or_value(value: Any) -> Any:
    """Return what tells calls apart that need recordings of their own."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape)
    return value if type(value) is int else id(value)


class Verdict(NamedTuple):
    """Decision for a call: replay a recording, or run plain and say why; `watch`: watched."""

    recording: Recording | None = None
    why: str = ""
    watch: WatchedCalls | None = None


class Runner:
    """Runs a compiled graph on a list of inputs, which it may empty."""

    def __init__(self, plan: Plan, lanes: Lanes) -> None:
        self.plan, self.lanes = plan, lanes
        self.recordings: list[Recording] = []  # the latest used first
        self.replays = _native.Replays(
            self.recordings,
            lanes.lock.acquire,
            lanes.lock.release,
            plan.device.stream,
            plan.place.index or 0,
            plan.device.is_capturing,
            BLOCKED.get(plan.kind),
            lanes.ledger.replays,
            plan.kind,
        )
        self.captures = 0
        self.refused = False
        self.watches: dict[Any, WatchedCalls] = {}
        self.moving: set[int] = set()  # inputs that have moved too often to be recorded where they are
        self.followed: set[int] = set()  # inputs at fixed positions that have moved once

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        made = self.replays.replay(inputs)
        return self.decide(inputs) if made is None else made

    def decide(self, inputs: list[Any]) -> Sequence[Any]:
        """Return the results of a call that `replays` has no recording for."""
        choice = self.choose_alone(inputs)
        if isinstance(choice, list):
            return choice
        self.lanes.ledger.count_plain(self.plan.kind, choice.why)
        watch = choice.watch
        results: Sequence[Any] = self.plan.run(inputs)
        if watch is not None:
            watch.see_results(results)
        return results

    def choose_alone(self, inputs: list[Any]) -> Verdict | list[Any]:
        """Return the results of a replay, or why the call runs plain."""
        why = self.why_not_now()
        if why:
            return Verdict(why=why)
        if not self.lanes.lock.acquire(blocking=False):
            return Verdict(why=limits.BUSY)
        try:
            choice = self.choose(inputs)
            if choice.recording is None:
                return choice
            self.lanes.ledger.replays[self.plan.kind] += 1
            return _native.replay(choice.recording, inputs)
        finally:
            self.lanes.lock.release()

    def why_not_now(self) -> str:
        """Return why the call must run plain whatever its inputs are; "" if it need not."""
        if self.plan.device.is_capturing():
            return limits.INSIDE_CAPTURE
        blocked = BLOCKED.get(self.plan.kind)
        if blocked is not None and blocked():
            return limits.KEPT if self.plan.kind == "backward" else limits.HOOKED
        return ""

    def choose(self, inputs: list[Any]) -> Verdict:
        """Return the recording to replay, which may be new, or why there is none."""
        stale: tuple[Recording, Sequence[int]] | None = None
        stream = self.plan.device.stream(self.plan.place.index or 0)
        for at, recording in enumerate(self.recordings):
            moved = _native.moved_inputs(recording.layout, inputs)
            lane = recording.lane
            if moved is None or lane.abandoned or recording.retired:
                continue
            if recording.stream != stream:
                return Verdict(why=limits.OTHER_STREAM)
            if not recording.saved_before and lane.is_pending():  # a replay may write to what was saved there
                continue
            if moved:
                if recording.saved_before.isdisjoint(moved):  # else it is of another forward
                    stale = stale or (recording, moved)
                continue
            if lane.overwrites(recording.order):
                self.lanes.abandon(lane)
                return Verdict(why=limits.OVERWRITES)
            if at:
                self.recordings.insert(0, self.recordings.pop(at))
            return Verdict(recording)
        return self.choose_new(inputs, stale)

    def choose_new(self, inputs: list[Any], stale: tuple[Recording, Sequence[int]] | None) -> Verdict:
        """Return a new recording, or why none can be made now. stale: one whose inputs have moved."""
        if self.refused:
            return Verdict(why=limits.REFUSED)
        limit, backward = self.lanes.ledger.limit, self.plan.kind == "backward"
        self.recordings[:] = [each for each in self.recordings if not (each.lane.abandoned or each.retired)]
        if len(self.recordings) >= limit + (stale is not None) or self.captures >= 3 * limit:
            self.watches.clear()
            return Verdict(why=limits.TOO_MANY)
        place = self.lanes.of_forward(inputs) if backward else self.lanes.free()
        number, lane = place or (0, None)
        watch = self.watch(number, inputs)
        if watch.calls < limits.WATCHED:
            return Verdict(why=limits.WATCHING, watch=watch)
        if lane is None:
            return Verdict(why=limits.NOT_OURS if backward else limits.PENDING)
        if stale is not None and stale[0].lane is lane:
            self.demote(stale[1])
            self.recordings.remove(stale[0])
        if backward and lane.forward is not None and lane.forward.saved_is_released:
            lane.forward.retired = True  # what it has saved may be written to by a new capture of its backward
            return Verdict(why=limits.NOT_OURS)
        return self.record(lane, inputs, watch)

    def watch(self, number: int, inputs: Sequence[Any]) -> WatchedCalls:
        """Return what is known of calls of these sizes in a lane, after a look at these inputs."""
        key = (number, *map(sizes_or_value, inputs))
        if key not in self.watches and len(self.watches) >= MOST_WATCHED:
            self.watches.clear()
        found = self.watches.setdefault(key, WatchedCalls())
        found.see_inputs(inputs)
        return found

    def demote(self, moved: Sequence[int]) -> None:
        """Note that inputs have moved: parameters are followed once, after that they are copied as others are."""
        for at in moved:
            if at in self.plan.fixed and at not in self.followed:
                self.followed.add(at)
            else:
                self.moving.add(at)

    def fixed(self, lane: Lane, inputs: Sequence[Any], watch: WatchedCalls) -> frozenset[int]:
        """Return the positions of inputs that a new recording reads where they are."""
        plan, saved = self.plan, frozenset[int]()
        if plan.kind == "backward" and lane.forward is not None:
            saved = lane.forward.saved_at
        tensors = [at for at, each in enumerate(inputs) if isinstance(each, torch.Tensor)]
        trusted = watch.staying & plan.fixed if plan.kind == "backward" else watch.staying | plan.fixed
        return frozenset(
            at for at in tensors if (at in trusted and at not in self.moving) or address_of(inputs[at]) in saved
        )

    def record(self, lane: Lane, inputs: list[Any], watch: WatchedCalls) -> Verdict:
        """Record a call, and return the recording to replay for it."""
        plan, ledger = self.plan, self.lanes.ledger
        fixed = self.fixed(lane, inputs, watch)
        if share_memory(inputs, plan.written - fixed):
            return Verdict(why=limits.ALIASED)
        everything = self.lanes.copies_all or plan.kind == "backward"
        escaping = range(plan.visible) if everything else watch.outliving
        by_turns = plan.kind == "inference" and not watch.outliving_two
        self.captures += 1
        try:
            made = Recording(plan, lane, inputs, fixed, escaping, by_turns)
        except Exception as error:
            self.refused = True
            warn_user(f"a CUDA graph could not be recorded; kernels are launched one by one ({error})", FallbackWarning)
            ledger.refuse(plan.kind, f"recording it raised {type(error).__name__}: {error}")
            return Verdict(why=limits.REFUSED)
        self.lanes.saves |= bool(made.saved_at)
        self.recordings.insert(0, made)
        ledger.recordings[plan.kind] += 1
        return Verdict(made)

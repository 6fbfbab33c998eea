"""One capture of a compiled graph at certain inputs, and its replay."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch

from torchdynamo import _native
from torchdynamo.backends.cuda_graphs.device import Device, Run
from torchdynamo.backends.cuda_graphs.escape import Results
from torchdynamo.backends.cuda_graphs.lanes import Lane
from torchdynamo.backends.cuda_graphs.slots import Slots, address_of
from torchdynamo.backends.cuda_graphs.turns import PLACES, ResultPlace, as_list, captured_place, fits_in_places


class Plan(NamedTuple):
    """Facts about a compiled graph that are known before it is recorded.

    run: it, as a function of one list of inputs. kind: "inference", "forward" or "backward". visible: number of results
    that leave the graph; those behind are saved for the backward. fixed: positions of inputs that keep their memory
    from call to call. written: inputs that it writes to. counted: those of these whose versions it counts itself.
    constants: tensors of the graph that it may return.
    """

    run: Run
    kind: str
    device: Device
    place: torch.device
    visible: int
    fixed: frozenset[int]
    written: frozenset[int]
    counted: tuple[int, ...] = ()
    constants: tuple[torch.Tensor, ...] = ()


class Recording:
    """A capture, with the memory of its moving inputs and of its results.

    by_turns: results of an inference that escape are written by turns to two places, if they are small.
    """

    def __init__(
        self,
        plan: Plan,
        lane: Lane,
        inputs: Sequence[Any],
        fixed: Collection[int],
        escaping: Collection[int],
        by_turns: bool = False,
    ) -> None:
        self.plan, self.lane = plan, lane
        index = plan.place.index or 0
        with torch.no_grad():
            self.slots = Slots(inputs, fixed, plan.written, lambda slots: plan.device.reader(slots, index))
        self.layout = self.slots.layout
        plan = plan._replace(run=self.slots.reading(plan.run))
        self.retired = False  # not to be replayed any more
        self.saved_before = frozenset[int]()  # positions of inputs that the forward has saved in this lane's memory
        if plan.kind == "backward" and lane.forward is not None:
            saved_at: frozenset[int] = lane.forward.saved_at
            self.saved_before = frozenset(at for at in fixed if address_of(inputs[at]) in saved_at)
            lane.forward.release_saved(self.slots.inputs, inputs)
        captured, views = self.slots.release(), plan.kind != "backward"
        seen = list(captured) if views else []  # a backward's own inputs are to go as it is captured
        generators = [each for each in inputs if isinstance(each, torch.Generator)]
        with torch.no_grad():
            self.graph, made = plan.device.capture(plan.run, captured, lane.pool, index, generators)
        self.results = Results(as_list(made), seen, plan.visible, escaping, plan.constants)
        self.places: list[ResultPlace] = []
        if by_turns and fits_in_places(self.results):
            del made  # the memory of results that are copied is free for the captures that follow
            with torch.no_grad():
                self.places = [captured_place(plan, self.results, seen, lane.pool, generators) for _ in range(PLACES)]
        self.saved_at: frozenset[int] = frozenset(self.results.saved_owners)
        self.saved_is_released = False  # captures may write to what this forward saves
        self.stream = plan.device.stream(index)
        self.order = lane.count
        lane.count += 1
        self.take = self._take()

    def _take(self) -> object:
        """Return what is done at each replay, for `_native`."""
        results, slots = self.results, self.slots
        return _native.take(
            self.layout,
            self.graph.replay,
            slots.groups,
            slots.pointers(),
            self.plan.counted,
            results.template,
            results.copied,
            [each.for_native() for each in self.places],
            results.lent,
            results.saved,
            results.inputs,
            results.aliases,
            results.same,
            self.stream,
            self.order,
            self.plan.kind == "forward",
            bool(slots.written or results.shared),
            bool(self.saved_before),
        )

    def release_saved(self, captured: list[Any], inputs: Sequence[Any]) -> None:
        """Pass the memory that this forward saves tensors in to the capture of its backward, which may use it again.

        captured: inputs of that capture; those in this memory are replaced by tensors that own it.
        """
        owners, self.results.saved_owners = self.results.saved_owners, {}
        for at, value in enumerate(inputs):
            owner = owners.get(address_of(value)) if isinstance(value, torch.Tensor) else None
            if owner is None:
                continue
            if owner.dtype is value.dtype:
                offset = value.storage_offset() - owner.storage_offset()
                captured[at] = _native.reinterpret_tensor(owner, tuple(value.shape), value.stride(), offset)
            else:
                self.results.owners[address_of(value)] = owner
        self.saved_is_released = True

    def finish(self, inputs: list[Any], made: list[Any]) -> None:
        """Do what few replays need: write to inputs that move, and copy results that share memory."""
        self.slots.write_back(inputs)
        self.results.finish(made)

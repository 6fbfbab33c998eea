"""Keep apart the memory that recordings of one graph share.

Recordings of a lane allocate from one pool, so each may write to what earlier ones have released there. What is handed
out of a pool is watched: tensors saved for a backward block their lane for all but that backward, and results that
were handed out uncopied block recordings that might write to them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchdynamo import _native
from torchdynamo.backends.cuda_graphs.device import Device
from torchdynamo.backends.cuda_graphs.limits import Ledger
from torchdynamo.backends.cuda_graphs.slots import address_of

if TYPE_CHECKING:
    from torchdynamo.backends.cuda_graphs.recording import Recording

MOST_LANES = 4  # forwards of one graph that may wait for their backward at once; others run plain


class Lane:
    """One memory pool, with the recordings that allocate from it in their order."""

    def __init__(self, device: Device) -> None:
        self.pool = device.new_pool()
        self.count = 0  # of recordings so far
        self.saved: Any = None  # lease of what the latest forward has saved
        self.forward: Recording | None = None  # the one that saved it
        self.lent: dict[int, Any] = {}  # leases of results that the program got uncopied, by order of the recording
        self.abandoned = False

    def is_pending(self) -> bool:
        """Return whether tensors that a forward has saved here are alive."""
        return self.saved is not None and _native.is_alive(self.saved)

    def overwrites(self, order: int) -> bool:
        """Return whether a replay of the recording of that order may write to a result that somebody has.

        Memory of earlier recordings was in use when it was captured, so it does not touch that.
        """
        return any(each >= order and _native.is_alive(lease) for each, lease in self.lent.items())


class Lanes:
    """State that the forward and the backward of one captured graph share."""

    def __init__(self, device: Device, ledger: Ledger) -> None:
        self.device, self.ledger = device, ledger
        self.lanes: list[Lane] = []
        self.lock = threading.Lock()
        self.copies_all = False  # all results are copied out, because one was found alive too late
        self.saves = False  # forwards save tensors in their lane's memory

    def free(self) -> tuple[int, Lane] | None:
        """Return the first lane that no forward waits in, and its number; None if there are too many."""
        for number, lane in enumerate(self.lanes):
            if not lane.is_pending():
                return number, lane
        if len(self.lanes) >= MOST_LANES:
            return None
        self.lanes.append(Lane(self.device))
        return len(self.lanes) - 1, self.lanes[-1]

    def of_forward(self, inputs: Sequence[Any]) -> tuple[int, Lane] | None:
        """Return the lane in which the forward of a backward with these inputs ran; None if it ran plain."""
        if not self.saves:
            return self.free()
        addresses = {address_of(each) for each in inputs if isinstance(each, torch.Tensor)}
        for number, lane in enumerate(self.lanes):
            if lane.forward is not None and lane.forward.saved_at & addresses and lane.is_pending():
                return number, lane
        return None

    def abandon(self, lane: Lane) -> None:
        """Leave a lane's memory to who has results in it; from now on all results are copied out."""
        self.copies_all = lane.abandoned = True
        self.lanes.remove(lane)

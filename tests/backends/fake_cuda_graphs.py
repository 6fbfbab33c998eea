"""CUDA graphs without a GPU: captures compute nothing, replays write to the same memory, and reuse what was released.

A replay fills all memory of its pool with garbage that a real one might write to: what was released before or during
its capture, and what was allocated after it. So results that a program still has, and should not see change, do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchdynamo import _native
from torchdynamo.backends.cuda_graphs import pointers
from torchdynamo.backends.cuda_graphs.escape import moved
from torchdynamo.backends.cuda_graphs.pointers import width_of

GARBAGE = 0xAB


class Region:
    """Memory that a capture has allocated. `lease` tells whether its owner has released it."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.memory = tensors[0].untyped_storage().clone()
        views = [moved(each, self.memory) for each in tensors]
        self.owners, self.lease = _native.lend(_native.lender(views), None)
        self.spoil()

    def spoil(self) -> None:
        if self.memory.nbytes():
            self.memory.fill_(GARBAGE)

    def take_owners(self) -> list[torch.Tensor]:
        owners, self.owners = self.owners, []
        return owners


class FakePool:
    def __init__(self) -> None:
        self.regions: list[Region] = []


class FakeDevice:
    """Stands in the place of CUDA; counts captures and launches."""

    def __init__(self) -> None:
        self.captures = self.launches = 0
        self.points = True  # small inputs are read by pointers
        self.capturing = False
        self.current_stream = 0

    def new_pool(self) -> FakePool:
        return FakePool()

    def is_capturing(self) -> bool:
        return self.capturing

    def stream(self, index: int) -> int:
        return self.current_stream

    def capture(
        self, run: Callable[[list[Any]], Any], inputs: list[Any], pool: FakePool, index: int, generators: Any
    ) -> tuple[FakeGraph, Any]:
        self.captures += 1
        self.capturing = True
        try:
            graph = FakeGraph(self, run, inputs, pool)
        finally:
            self.capturing = False
        return graph, graph.hand_over()

    def reader(self, slots: Sequence[torch.Tensor], index: int) -> FakeReader | None:
        return FakeReader(slots) if self.points else None


class FakeReader:
    """Reads inputs when it is replayed; as it is captured, no address is written down yet."""

    def __init__(self, slots: Sequence[torch.Tensor]) -> None:
        self.slots, self.width, self.waits = slots, width_of(slots), 0
        self.addresses = torch.zeros(pointers.ROWS, len(slots), dtype=torch.int64)
        self.begun = torch.zeros(len(slots), dtype=torch.int64)

    def read(self) -> None:
        row = self.addresses[int(self.begun[0]) % len(self.addresses)].tolist()
        if row[0]:
            for slot, address in zip(self.slots, row, strict=True):
                ctypes.memmove(slot.data_ptr(), address, slot.nbytes)
            self.begun += 1

    def wait(self) -> None:
        self.waits += 1


class FakeGraph:
    def __init__(self, device: FakeDevice, run: Callable[[list[Any]], Any], inputs: list[Any], pool: FakePool) -> None:
        self.device, self.run, self.pool = device, run, pool
        self.inputs = [without_owner(each) for each in inputs]
        before = [(each, each.untyped_storage().clone()) for each in self.inputs if isinstance(each, torch.Tensor)]
        places = {each.untyped_storage().data_ptr() for each in self.inputs if isinstance(each, torch.Tensor)} - {0}
        random = torch.get_rng_state()
        made = list(run(inputs))
        torch.set_rng_state(random)
        for each, contents in before:
            each.untyped_storage().copy_(contents)
        self.groups = groups_of(made, places)
        self.own = [Region([made[at] for at in group]) for group in self.groups]
        self.made = made
        self.protected = [each for each in pool.regions if _native.is_alive(each.lease)]
        pool.regions += self.own

    def hand_over(self) -> list[Any]:
        made, self.made = self.made, []
        for group, region in zip(self.groups, self.own, strict=True):
            for at, owner in zip(group, region.take_owners(), strict=True):
                same = [other for other in range(len(made)) if made[other] is made[at] and other != at]
                for other in [at, *same]:
                    made[other] = owner
        return made

    def replay(self) -> None:
        self.device.launches += 1
        self.device.capturing = True
        try:
            made = list(self.run(list(self.inputs)))
        finally:
            self.device.capturing = False
        for region in self.pool.regions:
            if region not in self.protected:
                region.spoil()
        for group, region in zip(self.groups, self.own, strict=True):
            if region.memory.nbytes():
                region.memory.copy_(made[group[0]].untyped_storage())


def without_owner(value: Any) -> Any:
    """A tensor in the same memory that does not keep it, as addresses in a recording do not."""
    if not isinstance(value, torch.Tensor):
        return value
    (alias,), _ = _native.lend(_native.lender([value]), None)
    return alias.requires_grad_(value.requires_grad)


def groups_of(made: Sequence[Any], places: set[int]) -> list[list[int]]:
    """Positions of results by memory, without those in the memory of inputs, each tensor once."""
    groups: dict[int, list[int]] = {}
    seen: set[int] = set()
    for at, each in enumerate(made):
        if isinstance(each, torch.Tensor) and id(each) not in seen:
            seen.add(id(each))
            address = each.untyped_storage().data_ptr()
            if address not in places:
                groups.setdefault(address or -1 - at, []).append(at)
    return [*groups.values()]

"""Bring the inputs of a call to where a recording reads them.

An input either stays, and the recording reads it where it is, or moves: then its contents are copied into a slot. What
a recording writes to a slot is copied back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from torchdynamo import _native
from torchdynamo.backends.cuda_graphs.device import Run
from torchdynamo.backends.cuda_graphs.pointers import Reader, can_point

ReaderOf = Callable[[list[torch.Tensor]], Reader | None]


class Slots:
    """The inputs of one recording: those at `fixed` positions stay, other tensors have slots.

    `layout` tells natively whether the inputs of a call fit. `inputs` are what is captured, until `release`. `pointed`
    are slots that the recording fills itself, by `reader`; the others are filled by `groups`.
    """

    def __init__(
        self, inputs: Sequence[Any], fixed: Collection[int], written: Collection[int], reader_of: ReaderOf
    ) -> None:
        self.layout = _native.input_layout(list(inputs), frozenset(fixed))
        self.inputs = list(inputs)
        self.memory: dict[int, torch.Tensor] = {}
        for at, value in enumerate(inputs):
            if isinstance(value, torch.Tensor) and at not in fixed:
                self.inputs[at] = self.memory[at] = slot_for(value)
                once(self.memory[at]).copy_(once(value))
        self.written = [at for at in written if at in self.memory]
        self.pointed = {at: slot for at, slot in self.memory.items() if can_point(inputs[at])}
        self.reader = reader_of([*self.pointed.values()]) if self.pointed else None
        if self.reader is None:
            self.pointed = {}
        self.groups = by_dtype(
            [(at, once(slot)) for at, slot in self.memory.items() if slot.numel() and at not in self.pointed]
        )

    def pointers(self) -> tuple[Any, ...] | None:
        """Return what tells a launch natively where inputs lie; None if it reads none."""
        if self.reader is None:
            return None
        reader = self.reader
        return [*self.pointed], [*self.pointed.values()], reader.addresses, reader.begun, reader.width, reader.wait

    def reading(self, run: Run) -> Run:
        """Return a function to capture: it reads inputs by their pointers, and then runs."""
        reader = self.reader
        if reader is None:
            return run

        def read_and_run(inputs: list[Any]) -> Any:
            reader.read()
            return run(inputs)

        return read_and_run

    def write_back(self, inputs: Sequence[Any]) -> None:
        """Copy what the recording has written to slots to the inputs; their versions are counted by AOTAutograd."""
        for at in self.written:
            value = inputs[at]
            _native.reinterpret_tensor(value, tuple(value.shape), value.stride()).copy_(self.memory[at])

    def release(self) -> list[Any]:
        """Return the inputs to capture, and let go of them."""
        inputs, self.inputs = self.inputs, []
        return inputs


def by_dtype(tensors: Sequence[tuple[int, torch.Tensor]]) -> list[tuple[list[int], list[torch.Tensor]]]:
    """Return positions and tensors in groups of one dtype: each group is copied by one kernel."""
    found: dict[torch.dtype, tuple[list[int], list[torch.Tensor]]] = {}
    for at, tensor in tensors:
        positions, group = found.setdefault(tensor.dtype, ([], []))
        positions.append(at)
        group.append(tensor)
    return [*found.values()]


def address_of(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's storage; 0 for one without memory."""
    return tensor.untyped_storage().data_ptr()


def slot_for(value: torch.Tensor) -> torch.Tensor:
    """Return memory for an input, in its layout, that may be written to in any mode."""
    with torch.inference_mode(False):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def once(value: torch.Tensor) -> torch.Tensor:
    """Return a view that has each element of an expanded tensor once; other tensors as they are."""
    if torch._debug_has_internal_overlap(value) != 1:
        return value
    for dim, (size, stride) in enumerate(zip(value.shape, value.stride(), strict=True)):
        if stride == 0 and size > 1:
            value = value.narrow(dim, 0, 1)
    return value


def share_memory(inputs: Sequence[Any], positions: Collection[int]) -> bool:
    """Return whether an input at one of the positions has its memory in common with another input."""
    addresses = [address_of(each) if isinstance(each, torch.Tensor) else 0 for each in inputs]
    return any(addresses[at] and addresses.count(addresses[at]) > 1 for at in positions)

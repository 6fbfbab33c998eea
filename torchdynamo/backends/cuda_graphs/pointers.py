"""Let a recording read small inputs that move itself, where each call says that they lie.

A copy before a launch costs the host as much as the launch. Here a recording begins with a kernel that copies inputs to
their slots. It reads their addresses from memory of the host, where each launch that may wait for the device has a row
of its own; rows are used again when launches have read them.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import subprocess
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import torch

ROWS = 2048  # CUDA lets 1,024 launches wait
MOST_BYTES = 16 << 10  # of an input: for more, one block of threads takes longer than a copy takes the host
WORD = 8


class Reader(Protocol):
    """Reads inputs by pointers.

    addresses: int64[ROWS, inputs], of the host; its row for the next launch is filled before that. begun:
    int64[inputs], of the host: how many launches have read. width: addresses must be multiples of it.
    """

    addresses: torch.Tensor
    begun: torch.Tensor
    width: int

    def read(self) -> None:
        """Copy inputs to their slots, in a capture."""

    def wait(self) -> None:
        """Wait for all launches."""


def can_point(value: torch.Tensor) -> bool:
    """Return whether an input can be copied as so many bytes, and is small."""
    plain = value.is_contiguous() and not value.is_conj() and not value.is_neg()
    return plain and 0 < value.nbytes <= MOST_BYTES


def width_of(slots: Sequence[torch.Tensor]) -> int:
    """Return the size of the words by which slots are copied."""
    return WORD if all(each.nbytes % WORD == 0 and each.data_ptr() % WORD == 0 for each in slots) else 1


class ReaderMemory:
    """Memory of one reader, of host and device."""

    def __init__(self, inputs: int, index: int) -> None:
        place = f"cuda:{index}"
        with torch.inference_mode(False):  # it is written to in any mode
            self.addresses = torch.zeros(ROWS, inputs, dtype=torch.int64, device="cpu", pin_memory=True)
            self.begun = torch.zeros(inputs, dtype=torch.int64, device="cpu", pin_memory=True)
            self.counts = torch.zeros(inputs, dtype=torch.int64, device=place)
            self.table = torch.zeros(inputs, 2, dtype=torch.int64, device=place)


class CudaReader:
    """Reads inputs by a kernel of Triton's. Memory is used again, and not given back: launches may still wait."""

    idle: ClassVar[dict[tuple[int, int], list[ReaderMemory]]] = {}

    def __init__(self, slots: Sequence[torch.Tensor], index: int, kernel: Any) -> None:
        self.width, self.kernel, self.key = width_of(slots), kernel, (len(slots), index)
        spare = self.idle.setdefault(self.key, [])
        torch.cuda.synchronize(index)  # its last user's launches are done
        self.memory = spare.pop() if spare else ReaderMemory(len(slots), index)
        self.addresses, self.begun = self.memory.addresses, self.memory.begun
        table = torch.tensor([[each.data_ptr(), each.nbytes // self.width] for each in slots], device="cpu")
        self.memory.table.copy_(table)
        self.memory.counts.zero_()
        self.addresses[0] = table[:, 0]
        self.read()  # compiles the kernel, which a capture cannot
        torch.cuda.synchronize(index)

    def read(self) -> None:
        """Copy inputs to their slots, in a capture."""
        memory = self.memory
        self.kernel.read(memory.addresses, memory.begun, memory.counts, memory.table, self.width)

    def wait(self) -> None:
        """Wait for all launches."""
        torch.cuda.synchronize(self.key[1])

    def __del__(self) -> None:
        if memory := getattr(self, "memory", None):
            self.idle[self.key].append(memory)


@functools.cache
def pointer_kernel() -> Any:
    """Return the module with the kernel, None where there is no Triton; importing that takes long."""
    if importlib.util.find_spec("triton") is None:
        return None
    return importlib.import_module("torchdynamo.backends.cuda_graphs.pointer_kernel")


def cuda_reader(slots: Sequence[torch.Tensor], index: int) -> CudaReader | None:
    """Return a reader for slots on a device of CUDA's; None where Triton cannot compile, as without a C compiler."""
    try:
        kernel = pointer_kernel()
        return None if kernel is None else CudaReader(slots, index, kernel)
    except (ImportError, OSError, RuntimeError, subprocess.SubprocessError):
        return None

"""A kernel for GPUs that copies inputs of a recording to their slots, from addresses that the host has written down.

Triton compiles it when it is first called.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 1024  # words that are copied together


# One warp for each input: with more, one might count on before another has read the count.
@triton.jit  # type: ignore[untyped-decorator]
def _read(addresses, begun, counts, table, rows, words: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0)
    count = tl.load(counts + at)
    source = tl.load(addresses + (count % rows) * tl.num_programs(0) + at, volatile=True)
    target, size = tl.load(table + 2 * at), tl.load(table + 2 * at + 1)
    if words:
        here, there = source.to(tl.pointer_type(tl.int64)), target.to(tl.pointer_type(tl.int64))
        for first in range(0, size, block):
            index = first + tl.arange(0, block)
            tl.store(there + index, tl.load(here + index, mask=index < size), mask=index < size)
    else:
        bytes_here, bytes_there = source.to(tl.pointer_type(tl.int8)), target.to(tl.pointer_type(tl.int8))
        for first in range(0, size, block):
            index = first + tl.arange(0, block)
            tl.store(bytes_there + index, tl.load(bytes_here + index, mask=index < size), mask=index < size)
    tl.store(counts + at, count + 1)
    tl.store(begun + at, count + 1)


def read(addresses: torch.Tensor, begun: torch.Tensor, counts: torch.Tensor, table: torch.Tensor, width: int) -> None:
    """Launch the kernel.

    addresses, begun: as `Reader` has them. counts: launches so far. table: of each input where its slot lies, and how
    many words it has, of so many bytes as the width says.
    """
    rows, inputs = addresses.shape
    with torch.cuda.device_of(counts):
        _read[(inputs,)](addresses, begun, counts, table, rows, words=width > 1, block=BLOCK, num_warps=1)

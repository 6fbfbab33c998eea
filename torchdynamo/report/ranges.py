"""Mark what the compiler does as ranges in the trace of torch's profiler, and of NVTX where that listens.

The ranges of compiled graphs are made by the C half: hook/csrc/ranges.cpp.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import CodeType

import torch

from torchdynamo import events
from torchdynamo.codegen import resume


@contextlib.contextmanager
def compiling(code: CodeType, again: bool) -> Iterator[None]:
    """Mark the block as the compilation of a frame.

    again: the frame fits none of its versions, so the range is called `guards missed` instead of `compile`.
    """
    with _range(code, "guards missed" if again else "compile"):
        yield


@contextlib.contextmanager
def phase(code: CodeType, name: str) -> Iterator[None]:
    """Charge the time of the block to a phase of the compilation, and mark it."""
    with events.phase(name), _range(code, name):
        yield


def _range(code: CodeType, what: str) -> contextlib.AbstractContextManager[None]:
    """Return a range named like `torchdynamo: f capture`; it costs under a microsecond while nobody profiles."""
    return torch._C._profiler._RecordFunctionFast(f"torchdynamo: {resume.origin(code).code.co_name} {what}")

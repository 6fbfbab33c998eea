"""What is kept of each compiled frame, and how many a function has."""

from __future__ import annotations

from types import CodeType
from typing import Any, NamedTuple

from torchdynamo import _native
from torchdynamo.cache.weak_invalidation import Ties
from torchdynamo.capture.exits import Why
from torchdynamo.core.source import Guard


class CompiledEntry(NamedTuple):
    """The record behind a native entry: `eval_frame.cache_entries(fn)` shows it."""

    code: CodeType
    guards: list[Guard]
    graph: Any  # torch.fx.GraphModule, or None where nothing was captured
    why: Why | None  # what ended the capture, if it did not reach the end of the frame
    name: str
    compiler: Any  # who made it: kept, so that entering the same context again finds the same one
    ties: Ties  # what drops it


def entries_of(code: CodeType, owner_id: int) -> list[CompiledEntry]:
    """Return the entries of this compiler on a code object, oldest first."""
    return [
        entry.info for entry in _native.cache_entries(code) if entry.owner_id == owner_id and entry.info is not None
    ]


def wasted(code: CodeType, owner_id: int) -> int:
    """Return how many of them served no call but the one they were made for."""
    return sum(entry.owner_id == owner_id and entry.hits <= 1 for entry in _native.cache_entries(code))

"""The record that is kept of each compiled frame, and how many a function has."""

from __future__ import annotations

from types import CodeType
from typing import Any, NamedTuple

from torchdynamo import _native
from torchdynamo.cache.weak_invalidation import Ties
from torchdynamo.capture.exits import Why
from torchdynamo.core.source import Guard, Roots


class CompiledEntry(NamedTuple):
    """The record behind a native entry, shown by `eval_frame.cache_entries(fn)`."""

    code: CodeType
    guards: list[Guard]
    graph: Any  # torch.fx.GraphModule, or None if nothing was captured
    why: Why | None  # what ended the capture, if it did not reach the end of the frame
    name: str
    compiler: Any  # the compiler that made it, kept alive so that its owner id stays its own
    ties: Ties  # weak references that drop the entry


def entries_of(code: CodeType, owner_id: int) -> list[CompiledEntry]:
    """Return a compiler's entries on a code object, the oldest first."""
    return [
        entry.info for entry in _native.cache_entries(code) if entry.owner_id == owner_id and entry.info is not None
    ]


def wasted(code: CodeType, owner_id: int) -> int:
    """Return how many entries served no call but the one that they were made for."""
    return sum(entry.owner_id == owner_id and entry.hits <= 1 for entry in _native.cache_entries(code))


def publish(code: CodeType, made: Any) -> None:
    """Make an entry visible to the threads that wait."""
    if isinstance(made, _native.Entry):
        _native.keep_entry(code, made)


def made_meanwhile(code: CodeType, roots: Roots, owner_id: int) -> Any:
    """Return an entry of this compiler that another thread has made for such a frame; None if there is none."""
    for entry in _native.cache_entries(code):
        program = entry.check
        if entry.owner_id != owner_id or not isinstance(program, _native.GuardProgram):
            continue
        if program.check(roots.locals, roots.globals, roots.builtins, roots.closure):
            return entry
    return None

"""Exceptions on their way out of a graph: where they come from, and what the user gets to see of it."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, TracebackType

import torch.fx.graph_module

_OURS = str(Path(__file__).parent.parent) + "/"
_FX = torch.fx.graph_module.__file__
_GENERATED = "<eval_with_key>"  # FX's file name for the code of a graph
_ASSIGNMENT = re.compile(r"(?:^|;)\s*([A-Za-z_]\w*) = ")


def raised_inside(error: BaseException, code: CodeType) -> bool:
    """Whether the error came out of a run of this code: the operation itself failed, not the compiler's version."""
    return any(entry.tb_frame.f_code is code for entry in _entries(error.__traceback__))


def without_our_frames(error: BaseException) -> BaseException:
    """The same exception; its traceback shows neither this package nor FX's generated code."""
    kept = [entry for entry in _entries(error.__traceback__) if not _is_ours(entry.tb_frame.f_code.co_filename)]
    first: TracebackType | None = None
    for entry in reversed(kept):
        entry.tb_next = first
        first = entry
    return error.with_traceback(first)


def add_position(error: BaseException, code: CodeType, lines: Mapping[str, str]) -> None:
    """Note the user's line of the operation that failed, found by the line of generated code that called it."""
    for entry in _entries(error.__traceback__):
        if entry.tb_frame.f_code is code:
            text = linecache.getline(code.co_filename, entry.tb_lineno, entry.tb_frame.f_globals)
            found = [lines[name] for name in _ASSIGNMENT.findall(text) if lines.get(name)]
            if found and hasattr(error, "add_note") and found[0] not in getattr(error, "__notes__", ()):
                error.add_note(found[0])
            return


def _is_ours(filename: str) -> bool:
    return filename.startswith((_OURS, _GENERATED)) or filename == _FX


def _entries(entry: TracebackType | None) -> Iterator[TracebackType]:
    while entry is not None:
        following = entry.tb_next
        yield entry
        entry = following

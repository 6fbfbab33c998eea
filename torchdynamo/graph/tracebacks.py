"""Give exceptions that leave a graph the traceback that they would have in the program."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, MappingProxyType, TracebackType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch.fx.graph_module

from torchdynamo import _native
from torchdynamo.core.call_sites import CallSite, namespace

_OURS = str(Path(__file__).parent.parent) + "/"
_FX = torch.fx.graph_module.__file__
_GENERATED = "<eval_with_key>"  # beginning of FX's file names for generated code
_ASSIGNMENT = re.compile(r"(?:^|;)\s*([A-Za-z_]\w*) = ")


class Above:
    """Callback for errors that leave a function: adds the Python functions that called it to the traceback."""

    def __init__(self, site: CallSite | None) -> None:
        """Make the callback. site: where the innermost of these functions calls it."""
        self.site = site

    def __call__(self, error: BaseException) -> None:
        error.__traceback__ = called_at(self.site, error.__traceback__)


class Program(NamedTuple):
    """The program's call stack when a graph was captured: at its start, and at each of its nodes."""

    start: CallSite | None = None
    nodes: Mapping[str, CallSite] = MappingProxyType({})

    def shown(self, error: BaseException, graph: CodeType) -> BaseException:
        """Return an error that left a graph with this code, with the traceback that it would have in the program.

        The traceback begins with the frame that called the graph. An error of no particular node is shown at its first
        line.
        """
        site, inside, running = self.start, error.__traceback__, False
        for entry in _entries(error.__traceback__):
            running |= is_of(entry.tb_frame.f_code, graph)  # later frames may belong to bodies and stages of it
            found = self._at(entry) if running else None
            if found is not None:
                site, inside = found, entry.tb_next
        return error.with_traceback(called_at(site, _foreign(inside)))

    def _at(self, entry: TracebackType) -> CallSite | None:
        """Return the call stack of the node at which a traceback entry of generated code stands; None for others."""
        code = entry.tb_frame.f_code
        if not code.co_filename.startswith(_GENERATED):
            return None
        text = linecache.getline(code.co_filename, entry.tb_lineno, entry.tb_frame.f_globals)
        return next((self.nodes[name] for name in _ASSIGNMENT.findall(text) if name in self.nodes), None)


PROGRAMS: WeakKeyDictionary[torch.fx.GraphModule, Program] = WeakKeyDictionary()
"""Programs of bodies, which run at another time than the frame that they were captured in."""


AS_CAPTURED: WeakValueDictionary[int, CodeType] = WeakValueDictionary()
"""By id: code of parts of graphs that run operator by operator, whatever the backend."""


def is_of(code: CodeType, graph: CodeType) -> bool:
    """Return whether code is that of a graph, or of a part that runs as it was captured."""
    return code is graph or AS_CAPTURED.get(id(code)) is code


def raised_inside(error: BaseException, code: CodeType) -> bool:
    """Return whether an error came out of a run of this code: eager's own graph, not a compiled version."""
    return any(is_of(entry.tb_frame.f_code, code) for entry in _entries(error.__traceback__))


def _foreign(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without frames of this package and of FX's generated code."""
    first: TracebackType | None = None
    for entry in reversed(list(_entries(trace))):
        if not _is_ours(entry.tb_frame.f_code.co_filename):
            entry.tb_next = first
            first = entry
    return first


def hide_own_frames(error: BaseException) -> None:
    """Remove the frames of this package from an exception's traceback."""
    error.__traceback__ = _foreign(error.__traceback__)


def called_at(site: CallSite | None, inside: TracebackType | None) -> TracebackType | None:
    """Return a traceback in which these calls, outermost first, precede `inside`."""
    frames: list[Any] = []
    for call in site.outermost_first() if site is not None else ():
        code = call.code()
        if code is not None:  # None: the function has been freed
            back = frames[-1] if frames else None
            frames.append(_native.frame_at(code, namespace(call.module), max(call.offset, 0), back))
    for frame in reversed(frames):
        inside = TracebackType(inside, frame, frame.f_lasti, frame.f_lineno or frame.f_code.co_firstlineno)
    return inside


def _is_ours(filename: str) -> bool:
    return filename.startswith((_OURS, _GENERATED)) or filename == _FX


def _entries(entry: TracebackType | None) -> Iterator[TracebackType]:
    while entry is not None:
        following = entry.tb_next
        yield entry
        entry = following

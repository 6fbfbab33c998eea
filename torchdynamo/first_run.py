"""Handle a function's first call, which sets something up: what it does is not worth compiling.

A module that fills a cache when it is first used falsifies the guards of its first capture. That capture runs once,
without a backend; then, before the call returns, the function is captured again in its new state, and that is compiled.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from copy import copy
from types import CodeType
from typing import Any, NamedTuple

from torchdynamo import _native
from torchdynamo.capture.capture import Capture
from torchdynamo.capture.speculate.self_invalidation import spends_gradients
from torchdynamo.codegen.emit import CodeEmitter
from torchdynamo.core.learned import record
from torchdynamo.core.source import Roots, Source, local

FIRST_RUN = "setup"  # section of a stored entry
MOST = 4  # first runs of one function; after so many, set-up never ends, and captures are compiled as usual


def is_endless_setup(code: CodeType) -> bool:
    """Count a first run; return whether there were too many to be set-up."""
    known = record(code)
    known.first_runs += 1
    return known.first_runs > MOST


def raises(entry: Any) -> bool:
    """Return whether the frame, run again at once, would raise because something else undoes the set-up each time.

    An entry for one call has no record: it raises.
    """
    info = entry.info
    return info is None or (info.why is not None and info.why.reason == "uncaught exception")


class FirstCall(NamedTuple):
    """Describe the call of a first run: the names of what it was given, and if compilation waits for the next call."""

    arguments: tuple[str, ...]
    cells: tuple[str, ...]
    filled: tuple[str, ...]  # arguments that are lists, dicts or sets, and are changed
    waits: bool


class FirstRun:
    """Called by the code of a first run at its end, to compile the function in its new state.

    Lists, dicts and sets that the call was given and has filled are restored to their state at entry, as the next call
    gets others. If the call drops gradients that it used, compilation waits for the next call, which brings new ones.
    """

    def __init__(self, code: CodeType, call: FirstCall, roots: Roots, build: Callable[[CodeType, Roots], Any]) -> None:
        """Make the object before the call. build: returns an entry for the function in its new state."""
        self.code = weakref.ref(code)  # weak, because the code owns this object
        self.call = call
        self.before = {name: copy(roots.locals[name]) for name in call.filled}
        self.build = build
        self.entry: Any = None

    @classmethod
    def of(cls, capture: Capture, build: Callable[[CodeType, Roots], Any]) -> FirstRun:
        """Return the first run of what has been captured."""
        roots = capture.machine.roots
        filled = [entity.source for entity in capture.changed if type(entity.real) in (list, dict, set)]
        names = dict.fromkeys(each.arg for each in filled if each is not None and each.how == "local")
        waits = spends_gradients(capture.machine)
        call = FirstCall(tuple(roots.locals), tuple(roots.closure), tuple(names), waits)
        return cls(capture.code, call, roots, build)

    def __call__(self, globals: Any, builtins: Any, *objects: Any) -> None:
        code, entry = self.code(), self.entry
        if code is None or entry is None or not entry.live:
            return
        callback = _native.set_eval_frame(None)
        try:
            self.entry = None
            _native.drop_entry(code, entry)
            if self.call.waits:
                return
            count = len(self.call.arguments)
            arguments = dict(zip(self.call.arguments, objects[:count], strict=True)) | self.before
            self.before = {}
            cells = dict(zip(self.call.cells, objects[count:], strict=True))
            again = self.build(code, Roots(arguments, globals, builtins, cells))
            if again is not None and raises(again):
                record(code).first_runs = MOST
            elif again is not None:
                _native.keep_entry(code, again)
        finally:
            _native.set_eval_frame(callback)

    def emit(self, emit: CodeEmitter) -> None:
        """Emit the call of this object, after all side effects."""
        emit.function(self)
        emit.source(Source("globals"))
        emit.source(Source("builtins"))
        for name in self.call.arguments:
            emit.source(local(name))
        for name in self.call.cells:
            emit.source(Source("closure", None, name))
        emit.op("CALL", (2 + len(self.call.arguments) + len(self.call.cells), ()))
        emit.op("POP")

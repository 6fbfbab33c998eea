"""The first call of a function that sets something up: what it does then is not worth compiling.

A module that fills a cache when it is first used falsifies the guards of its first capture. That capture runs once, as
it is, without a backend; then, before the call returns, the function is captured again as it will be from now on, and
that is compiled.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from copy import copy
from types import CodeType
from typing import Any

from torchdynamo import _native
from torchdynamo.capture.capture import Capture
from torchdynamo.capture.speculate.self_invalidation import spends_gradients
from torchdynamo.codegen.emit import CodeEmitter
from torchdynamo.core.learned import record
from torchdynamo.core.source import Roots, Source, local

MOST = 4  # first runs of one function: with more, it is the rule that it meets what is not set up yet


def may_come_again(code: CodeType) -> bool:
    """Return whether this may still be taken for something that happens once; counts that it happened."""
    known = record(code)
    known.first_runs += 1
    return known.first_runs > MOST


def raises(entry: Any) -> bool:
    """Return whether the frame, begun again at once, would raise: something else takes back what was set up,
    each time.
    """
    return entry.info.why is not None and entry.info.why.reason == "uncaught exception"


class FirstRun:
    """What the code of a first run calls at its end, with the state it began with.

    Lists and the like that it was given and fills are as they were when it got them: the next call is given others.
    Where it lets go of gradients that it used, the next call is waited for: that brings others.
    """

    def __init__(self, capture: Capture, build: Callable[[CodeType, Roots], Any]) -> None:
        self.code = weakref.ref(capture.code)  # which owns us
        roots = capture.machine.roots
        self.arguments = list(roots.locals)
        self.cells = list(roots.closure)
        filled = [entity for entity in capture.changed if type(entity.real) in (list, dict, set)]
        self.before = {e.source.arg: copy(e.real) for e in filled if e.source is not None and e.source.how == "local"}
        self.build = build
        self.waits = spends_gradients(capture.machine)
        self.entry: Any = None

    def __call__(self, globals: Any, builtins: Any, *objects: Any) -> None:
        code, entry = self.code(), self.entry
        if code is None or entry is None or not entry.live:
            return
        callback = _native.set_eval_frame(None)
        try:
            self.entry = None
            _native.drop_entry(code, entry)
            if self.waits:
                return
            count = len(self.arguments)
            arguments = dict(zip(self.arguments, objects[:count], strict=True)) | self.before
            self.before = {}
            cells = dict(zip(self.cells, objects[count:], strict=True))
            again = self.build(code, Roots(arguments, globals, builtins, cells))
            if again is not None and raises(again):
                record(code).first_runs = MOST
            elif again is not None:
                _native.keep_entry(code, again)
        finally:
            _native.set_eval_frame(callback)

    def emit(self, emit: CodeEmitter) -> None:
        """Emit the call, where all side effects are done."""
        emit.function(self)
        emit.source(Source("globals"))
        emit.source(Source("builtins"))
        for name in self.arguments:
            emit.source(local(name))
        for name in self.cells:
            emit.source(Source("closure", None, name))
        emit.op("CALL", (2 + len(self.arguments) + len(self.cells), ()))
        emit.op("POP")

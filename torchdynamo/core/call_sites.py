"""Record the program's call stack at each captured operation, for the tracebacks of errors in the graph.

Call sites keep nothing of the program alive: a code object owns the graphs of its function, so a strong reference would
make a cycle.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, NamedTuple
from weakref import ref

from torchdynamo.bytecode.decode import decode
from torchdynamo.bytecode.instruction import CALLS


class CallSite(NamedTuple):
    """An instruction of a running function, with the call site of that function's caller."""

    code: ref[CodeType]
    offset: int  # offset of the instruction, as `dis` prints it
    module: str  # the name of the module whose globals the function has
    caller: CallSite | None

    def outermost_first(self) -> Iterator[CallSite]:
        """Yield the chain of calls in the order of a traceback."""
        if self.caller is not None:
            yield from self.caller.outermost_first()
        yield self


class Passed(NamedTuple):
    """A Python function that is replaced by a model, at the place where it would call another function."""

    code: ref[CodeType]
    offset: int
    module: str

    @classmethod
    def calling(cls, fn: FunctionType, name: str) -> Passed:
        """Return the first call of `name(...)` or `self.name(...)` in a function. Raises
        LookupError if there is none.
        """
        found = False
        for instruction in decode(fn.__code__).instructions:
            named = instruction.arg[0] if instruction.op == "LOAD_SUPER" else instruction.arg
            found |= named == name
            if found and instruction.op in CALLS:
                return cls(ref(fn.__code__), instruction.offset, fn.__module__)
        raise LookupError(f"{fn.__qualname__} calls no {name}")


def call_site(frames: Sequence[Any], passed: Sequence[Passed] = ()) -> CallSite | None:
    """Return the call site at which the innermost of these frames stands; polyfills count as their callers.

    passed: functions called from there, outermost first, that have no frame of their own.
    """
    if not frames:
        return None
    frame = frames[-1]
    site: CallSite | None = frame.caller
    if frame.globals.source is not None:
        offset = frame.code.instructions[frame.pc].offset
        site = CallSite(ref(frame.raw), offset, frame.globals.real.get("__name__", ""), site)
    return calls(passed, site)


Call = Callable[[Callable[..., Any], Sequence[Any], Mapping[str, Any]], Any]


def call(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function."""
    return fn(*args, **kwargs)


_LINES_BEFORE = 2  # lines between the first of `call` and its call


class CallLine(NamedTuple):
    """The line of a running function that stands in the program, by names."""

    filename: str
    function: str
    line: int
    module: str  # whose globals the function has


def line_of(frames: Sequence[Any]) -> tuple[CallLine, dict[str, Any]] | None:
    """Return the line of the innermost of these frames, polyfills apart, and its globals; None if it has no line."""
    frame = next((each for each in reversed(frames) if each.globals.source is not None), None)
    line = frame.position().line if frame is not None else None
    if frame is None or line is None:
        return None
    raw, space = frame.raw, frame.globals.real
    return CallLine(raw.co_filename, raw.co_name, line, str(space.get("__name__"))), space


def calling_from(frames: Sequence[Any]) -> Call:
    """Return a `call` that appears to stand on the line of the innermost frame, for warnings about a caller."""
    found = line_of(frames)
    return call if found is None else FunctionType(code_at(*found[0][:3]), found[1])


@lru_cache(1024)
def code_at(filename: str, function: str, line: int) -> CodeType:
    """Return the code of `call`, as if it stood there."""
    return call.__code__.replace(co_filename=filename, co_name=function, co_firstlineno=max(line - _LINES_BEFORE, 0))


def namespace(module: str) -> dict[str, Any]:
    """Return the globals of a module; for one that is not imported, a dict with its name only."""
    found = sys.modules.get(module)
    return {"__name__": module} if found is None else vars(found)


def calls(passed: Sequence[Passed], site: CallSite | None = None) -> CallSite | None:
    """Add calls, outermost first, on top of a call site."""
    for each in passed:
        site = CallSite(*each, site)
    return site

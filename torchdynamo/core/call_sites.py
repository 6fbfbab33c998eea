"""The calls in which an operation was captured: for an error of the graph, whose traceback is to be the program's.

Nothing of the program is kept alive by it: a code object owns the graphs of its function, and would own itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any, NamedTuple
from weakref import ref

from torchdynamo.bytecode.decode import decode


class CallSite(NamedTuple):
    """An instruction of a function that runs, and the call of that function."""

    code: ref[CodeType]
    offset: int  # of the instruction, as `dis` prints it
    module: str  # the name of the module whose globals the function has
    caller: CallSite | None

    def outermost_first(self) -> Iterator[CallSite]:
        """Yield the chain of calls in the order of a traceback."""
        if self.caller is not None:
            yield from self.caller.outermost_first()
        yield self


class Passed(NamedTuple):
    """A Python function that a model stands for, at the call that it makes of another."""

    code: ref[CodeType]
    offset: int
    module: str

    @classmethod
    def calling(cls, fn: FunctionType, name: str) -> Passed:
        """Find the first call of `name(...)`, or `self.name(...)`, in a function."""
        found = False
        for instruction in decode(fn.__code__).instructions:
            named = instruction.arg[0] if instruction.op == "LOAD_SUPER" else instruction.arg
            found |= named == name
            if found and instruction.op in ("CALL", "CALL_EX"):
                return cls(ref(fn.__code__), instruction.offset, fn.__module__)
        raise LookupError(f"{fn.__qualname__} calls no {name}")


def call_site(frames: Sequence[Any], passed: Sequence[Passed] = ()) -> CallSite | None:
    """Say where the innermost of these frames stands. Polyfills are no part of the program: their callers count.

    passed: functions that were called from there, outermost first, and are not among the frames.
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


_LINES_BEFORE = 2  # of `call`, before its own


def calling_from(frames: Sequence[Any]) -> Call:
    """Make a `call` that stands on the line of the innermost of these frames: what is called may warn of its caller."""
    frame = next((each for each in reversed(frames) if each.globals.source is not None), None)
    line = frame.position().line if frame is not None else None
    if frame is None or line is None:
        return call
    raw = frame.raw
    code = call.__code__.replace(
        co_filename=raw.co_filename, co_name=raw.co_name, co_firstlineno=max(line - _LINES_BEFORE, 0)
    )
    return FunctionType(code, frame.globals.real)


def calls(passed: Sequence[Passed], site: CallSite | None = None) -> CallSite | None:
    """Add calls, outermost first, that were made from a call site."""
    for each in passed:
        site = CallSite(*each, site)
    return site

"""A frame under symbolic execution, and what it takes to make one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from torchdynamo.bytecode.decode import decode
from torchdynamo.core.call_sites import CallSite, Passed
from torchdynamo.core.source import Position, Source
from torchdynamo.core.value import Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.speculate.unrolling import UnrolledLoop


class Globals(NamedTuple):
    """Hold the namespace of a module as a frame sees it."""

    real: dict[str, Any]
    source: Source | None  # None: our own polyfills, which need no guards
    builtins: dict[str, Any]
    builtins_source: Source = Source("builtins")


class FunctionParts(NamedTuple):
    """Hold the parts of a Python function. Defaults are looked at only when a call needs them."""

    code: CodeType
    globals: Globals
    qualname: Callable[[], str]
    defaults: int
    default: Callable[[int], Value]
    kwdefaults: frozenset[str]
    kwdefault: Callable[[str], Value]
    closure: dict[str, Value]


class MadeFunction(NamedTuple):
    """The payload of a function that the frame made: its parts, and the arguments of MAKE_FUNCTION."""

    parts: FunctionParts
    given: dict[str, Value]


class FunctionCall(NamedTuple):
    """Hold a call of a function: what a generator is made by."""

    fn: Value
    args: Sequence[Value]
    kwargs: Mapping[str, Value]


class Frame:
    """Hold the locals, cells, stack and program counter of one activation."""

    __slots__ = (
        *(
            "again",
            "caller",
            "cells",
            "code",
            "direct",
            "globals",
            "handling",
            "level",
            "locals",
            "loops",
            "made_by",
            "namespace",
            "ops",
            "path",
            "pc",
            "previous",
        ),
        *("passed", "positions", "raw", "result", "root", "stack", "yielded"),
    )

    def __init__(self, code: CodeType, globals: Globals, local: dict[str, Value], closure: dict[str, Value]) -> None:
        self.raw = code
        self.code = decode(code)
        self.positions: dict[int, Position] = self.code.analyses.setdefault("positions", {})
        self.globals = globals
        self.locals = local
        self.cells: dict[str, Value] = dict(closure)  # each activation adds cells of its own
        self.stack: list[Any] = []
        self.pc = 0
        self.yielded = False
        self.handling: list[Object] = []  # exceptions being handled, innermost last
        self.previous: list[Known] = []  # for each of them, what stands on the stack for the one handled before
        self.root = False
        self.direct = False  # what it returns is what the instruction of the frame below gives
        self.caller: CallSite | None = None  # where it was called; of the frame that is captured, nobody knows
        self.passed: Sequence[Passed] = ()  # functions between that and this one which are no frames
        self.level = -1  # which frame it is of those that are left where the capture is to stop
        self.ops = 0  # how many operators there were when it was entered
        self.path: list[int] = []  # the instructions it has come by
        self.loops: dict[int, UnrolledLoop] = {}  # by instruction: those it is in, or was
        self.namespace: dict[str, Value] | None = None  # of the body of a class
        self.again = False  # some name of it was bound twice, or deleted
        self.result: Any = None
        self.made_by: FunctionCall | None = None  # of a generator

    def position(self) -> Position:
        """Return the user's place of the current instruction, looked up once."""
        found = self.positions.get(self.pc)
        if found is None:
            found = self.positions[self.pc] = self.place()
        return found

    def place(self) -> Position:
        """Look up the user's place of the current instruction."""
        instructions = self.code.instructions
        where = instructions[min(self.pc, len(instructions) - 1)].position
        name = self.raw.co_name
        if where is None:
            return Position(self.raw.co_filename, self.raw.co_firstlineno, function=name)
        return Position(
            self.raw.co_filename, where.lineno, where.end_lineno, where.col_offset, where.end_col_offset, name
        )

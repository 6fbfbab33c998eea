"""How a captured frame is left."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import Any, NamedTuple

from torchdynamo.capture.frame import Globals
from torchdynamo.core.call_sites import Passed
from torchdynamo.core.source import Position
from torchdynamo.core.value import Value


class Return(NamedTuple):
    """Say that the frame ran to its end."""

    value: Value


class BreakExit(NamedTuple):
    """Say that the frame was left before the instruction number `at`, or, with `callee`, in the call that it makes.

    With `resume_here` the continuation begins at that instruction and stays Python (it is a loop with a break inside);
    else the instruction is executed in Python, and the continuation begins after it.
    """

    at: int
    locals: dict[str, Value]
    stack: list[Value]  # for a call under way, what is below its operands
    resume_here: bool
    callee: Callee | None = None
    handling: tuple[tuple[Value, int], ...] = ()  # exceptions that it handles, and where on the stack the one before is


class Callee(NamedTuple):
    """Describe a frame that was called directly, and how it was left."""

    code: CodeType
    globals: Globals
    cells: dict[str, Value]
    exit: BreakExit
    passed: Sequence[Passed] = ()  # Python functions through which it was called, which a model stands for


class Why(NamedTuple):
    """Hold what ended a capture: a reason, its fields, and the user's place."""

    reason: str
    fields: dict[str, Any]
    position: Position | None
    callers: tuple[Position, ...] = ()  # the calls that led there, outermost first
    raises: bool = False  # the program itself is going to raise there, as far as can be told
    is_error: bool | None = None  # the program has asked for an error there; None: as it is when the frame begins

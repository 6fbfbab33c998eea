"""How a captured frame is left."""

from __future__ import annotations

from typing import Any, NamedTuple

from torchdynamo.capture.source import Position
from torchdynamo.capture.value import Value


class Return(NamedTuple):
    """The frame ran to its end."""

    value: Value


class BreakExit(NamedTuple):
    """The frame was left before the root instruction number `at`.

    With `resume_here` the continuation begins at that instruction and stays Python (it is a loop with a break inside);
    else the instruction is executed in Python, and the continuation begins after it.
    """

    at: int
    locals: dict[str, Value]
    stack: list[Value]
    resume_here: bool


class Why(NamedTuple):
    """What ended a capture: a reason, its fields, and the user's place."""

    reason: str
    fields: dict[str, Any]
    position: Position | None

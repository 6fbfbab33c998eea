"""Which guard failed, said in the user's words: what it was, what it is now, and which line needs it."""

from __future__ import annotations

from collections.abc import Iterable

from torchdynamo.capture.source import Guard, Roots
from torchdynamo.guards.kinds import KINDS


def first_failure(guards: Iterable[Guard], roots: Roots) -> str:
    """The first guard that does not hold for a frame, with old and new value; empty if all hold."""
    for guard in guards:
        kind = KINDS[guard.kind]
        try:
            value = guard.source.load(roots)
        except (KeyError, AttributeError, IndexError, ValueError):
            return f"{guard.source} is not there{line(guard)}"
        if not kind.holds(value, guard.arg, roots):
            return (
                f"{guard.source}: {guard.kind} {described(guard)} no longer holds, now {kind.tell(value)}{line(guard)}"
            )
    return ""


def described(guard: Guard) -> str:
    """The fact as it was when the guard was made, in short."""
    if guard.kind == "TENSOR_MATCH":
        cls, _, dtype, _, _, _, sizes, strides = guard.arg
        return f"{cls.__name__} {str(dtype).removeprefix('torch.')}{list(sizes or ())} stride {strides}"
    text = getattr(guard.arg, "__qualname__", None) or repr(guard.arg)
    return text if len(text) <= 80 else text[:77] + "..."


def line(guard: Guard) -> str:
    """The user's line that made the guard needed."""
    place = guard.position
    return f" (needed by {place.filename}:{place.line})" if place is not None else ""

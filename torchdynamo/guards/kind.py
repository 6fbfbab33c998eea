"""A kind of guard: a fact about one object, with its meaning in Python, its native check and its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch

from torchdynamo.core.naming import called
from torchdynamo.core.source import Guard, Roots, Source

NodeOf: TypeAlias = Callable[[Source], int]
Check: TypeAlias = "tuple[int, str, Any]"  # node of the program, native check, its payload


class GuardDifference(NamedTuple):
    """The difference that made a guard fail: the part of the object (`.dtype`), its old and its new text."""

    part: str
    old: str
    new: str


def short(obj: Any) -> str:
    """Return the text of an object in at most 80 characters."""
    text = called(obj)
    return text if len(text) <= 80 else f"{text[:77]}..."


def as_is(guard: Guard, roots: Roots) -> Guard:
    """Return the guard unchanged."""
    return guard


def unchanged(arg: Any) -> Any:
    """Return the argument."""
    return arg


def plain_change(value: Any, arg: Any, roots: Roots) -> GuardDifference:
    """Return the difference between the guard's argument and the object."""
    return GuardDifference("", short(arg), short(value))


class GuardKind(NamedTuple):
    """A row of the table of kinds. `arg` is the guard's argument, `value` the object at its source."""

    name: str
    holds: Callable[[Any, Any, Roots], bool]  # (value, arg, roots): the meaning
    lower: Callable[[Guard, NodeOf], Check]
    why: Callable[[Any, Any, Roots], GuardDifference] = plain_change  # (value, arg, roots): why it does not hold
    settle: Callable[[Guard, Roots], Guard] = as_is  # completes a capture's guard and drops strong references
    describe: Callable[[Any], str] = short  # text of the argument
    stored: Callable[[Any], Any] = unchanged  # the argument, given what was stored of it


def by_node(check: str) -> Callable[[Guard, NodeOf], Check]:
    """Return the usual lowering: a check of the source's node with the guard's own argument."""
    return lambda guard, node_of: (node_of(guard.source), check, guard.arg)


class NoObject:
    """The result of reading a source that leads nowhere."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = NoObject()


def read(source: Source, roots: Roots) -> Any:
    """Return the object at a source, or MISSING. The path may lead through the user's code, which
    may raise anything. Tensors on it are asked without their `__torch_function__`.
    """
    try:
        with torch._C.DisableTorchFunctionSubclass():
            return source.load(roots)
    except Exception:
        return MISSING

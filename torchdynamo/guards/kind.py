"""What a kind of guard is: a fact about one object, said twice (in Python and natively), and told to people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from torchdynamo.core.naming import called
from torchdynamo.core.source import Guard, Roots, Source

NodeOf: TypeAlias = Callable[[Source], int]
Check: TypeAlias = "tuple[int, str, Any]"  # node of the program, native check, its payload


class GuardDifference(NamedTuple):
    """What is not as it was: which part of the object (`.dtype`), and how it was and is."""

    part: str
    old: str
    new: str


def short(obj: Any) -> str:
    """Return an object in at most a line, by name if it has one."""
    text = called(obj)
    return text if len(text) <= 80 else f"{text[:77]}..."


def as_is(guard: Guard, roots: Roots) -> Guard:
    """Return the fact, which needs no settling."""
    return guard


def plain_change(value: Any, arg: Any, roots: Roots) -> GuardDifference:
    """Return the object as the fact."""
    return GuardDifference("", short(arg), short(value))


class GuardKind(NamedTuple):
    """A row of the table of kinds. `arg` is the guard's own argument, `value` the object at its source."""

    name: str
    holds: Callable[[Any, Any, Roots], bool]  # (value, arg, roots): the meaning
    lower: Callable[[Guard, NodeOf], Check]
    why: Callable[[Any, Any, Roots], GuardDifference] = plain_change  # of a guard that does not hold
    settle: Callable[[Guard, Roots], Guard] = as_is  # reads off what capture left open, lets go of what it may not keep
    told: Callable[[Any], str] = short  # the argument, for people


def by_node(check: str) -> Callable[[Guard, NodeOf], Check]:
    """Return the usual lowering: that check of the source's node, with the guard's own argument."""
    return lambda guard, node_of: (node_of(guard.source), check, guard.arg)


class NoObject:
    """Stands for the object where a source leads nowhere."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = NoObject()


def read(source: Source, roots: Roots) -> Any:
    """Return the object at a source, or MISSING: a way there may lead through code of the user's, which may raise
    anything.
    """
    try:
        return source.load(roots)
    except Exception:
        return MISSING

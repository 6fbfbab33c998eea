"""What a kind of guard is: a fact about one object, said twice (in Python and natively), and told to people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from torchdynamo.capture.source import Guard, Roots, Source

NodeOf: TypeAlias = Callable[[Source], int]
Check: TypeAlias = "tuple[int, str, Any]"  # node of the program, native check, its payload


class Kind(NamedTuple):
    """A row of the table of kinds."""

    name: str
    holds: Callable[[Any, Any, Roots], bool]  # (the object at the source, the guard's arg, where sources start)
    lower: Callable[[Guard, NodeOf], Check]
    tell: Callable[[Any], str]  # what is there now, for messages


def by_node(check: str) -> Callable[[Guard, NodeOf], Check]:
    """The usual lowering: that check of the source's node, with the guard's own argument."""
    return lambda guard, node_of: (node_of(guard.source), check, guard.arg)

"""Record what the capture of a call has added, and hold its guards against other objects."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from torchdynamo.core.source import Guard, Source
from torchdynamo.core.value import Value
from torchdynamo.graph.steps import Node, Step

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

BLOCK = "block"
Holds = Callable[[Any], bool]
# (guards on paths that begin at the local BLOCK, the object for which they hold) -> whether they hold for another
Checking = Callable[[list[Guard], Any], Holds]


class CallMarks(NamedTuple):
    """A place in a capture: how much there is of everything that only grows."""

    guards: int
    values: int
    steps: int
    objects: int
    dicts: int
    changes: int
    ops: int
    turns: int


def marks(vm: Machine) -> CallMarks:
    """Mark the place where the capture is now."""
    return CallMarks(
        *(len(vm.guards), len(vm.by_source), len(vm.builder.steps)),
        *(len(vm.heap.entities), len(vm.aliased_dicts), len(vm.effects.changes()), vm.ops, vm.turns),
    )


def newest(table: dict[Any, Any], count: int) -> list[tuple[Any, Any]]:
    """Return the items that were added last, in order."""
    found = list(islice(reversed(table.items()), count))
    found.reverse()
    return found


class RecordedCall(NamedTuple):
    """Additions of the capture of a call."""

    source: Source
    real: Any
    before: CallMarks
    after: CallMarks
    known: dict[Source, list[Guard]]  # what was known of the object before, by path
    guards: list[Guard]
    values: list[tuple[Source, Value]]
    steps: list[Step]
    given: frozenset[Node]  # that the call was given
    result: Value

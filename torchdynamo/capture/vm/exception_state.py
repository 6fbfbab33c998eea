"""State of an exception that the frame made, which none of its attributes shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torchdynamo.core.value import Object

if TYPE_CHECKING:
    from torchdynamo.capture.vm.heap import Entity


class ExceptionState(NamedTuple):
    """The payload of an exception. One that nothing has happened to may have none."""

    raised: bool = False
    whole: Object | None = None  # the group that it is a part of, until it is raised anew


NEW = ExceptionState()


def state_of(entity: Entity) -> ExceptionState:
    """Return whether an exception was raised, and which group it is a part of."""
    return entity.payload_if(ExceptionState) or NEW

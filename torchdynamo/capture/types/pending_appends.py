"""Append to a list or deque that nobody has looked into, so that its length at entry makes no difference.

Once something is read of it, what was appended comes after what there was at entry, like any other change.
"""

from __future__ import annotations

from typing import Any

from torchdynamo.capture.vm.emitted_calls import replay_call
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter
from torchdynamo.core.value import Object, Value


class Tail(list[Value]):
    """Items that come after what there was at entry, which has not been looked at."""


def tail(vm: Machine, value: Object) -> Tail | None:
    """Return the list of what is appended to an object that has not been looked into; None for other objects."""
    entity = vm.entity(value)
    if entity.items is None and not entity.fresh:
        entity.items = Tail()
    if entity.items.__class__ is not Tail:
        return None
    vm.effects.items(entity)
    found: Tail = entity.items
    return found


def replay(emit: Emitter, entity: Entity, extend: Any) -> None:
    """Emit code that appends the items, by that method."""
    replay_call(emit, extend, entity, list(entity.items))

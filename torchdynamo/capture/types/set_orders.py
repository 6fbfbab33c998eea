"""The order of a set comes from its history, so the history is what is kept.

Of a set that the frame makes: a real set of the same keys beside the items, its entity's payload, as long as all are
constants, or objects that existed. Of one that existed: what was done to it, in a list, to be done again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from torchdynamo.capture.types.keys import by_code
from torchdynamo.capture.vm.emitted_calls import replay_call
from torchdynamo.capture.vm.heap import MISSING, Entity, Heap
from torchdynamo.capture.vm.keys import Ref
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, rebuilds, replays
from torchdynamo.capture.vm.process_settings import note_order
from torchdynamo.core.signals import Restart
from torchdynamo.core.value import NONE, Known, Object, Value

EQUAL: Any = object.__eq__
Change = tuple[str, Value | None]  # a method of set, and what it was given


def record_change(vm: Machine, self: Object, method: str, key: Any = None, item: Value | None = None) -> None:
    """Record a change of one item of a set, or of all."""
    entity = vm.entity(self)
    if not entity.fresh:
        add_to_history(entity, (method, item))
        return
    order = entity.payload_if(set)
    if order is not None:
        each = () if item is None else (real_item(vm, key, item),)
        if each and each[0] is MISSING:
            entity.payload = None
        else:
            getattr(order, method)(*each)
            if method != "add":
                vm.heap.thinned.append(order)


def real_item(vm: Machine, key: Any, item: Value) -> Any:
    """Return what a real set has in place of an item: its key or the object that existed; MISSING if none is known."""
    if item.__class__ is Known:
        return key
    if item.__class__ is not Object or type(key) is not Ref or item.pytype.__eq__ is not EQUAL:
        return MISSING
    entity = vm.entity(item)
    return MISSING if entity.source is None else entity.real


def keys_in_order(vm: Machine, items: dict[Any, Value], order: Iterable[Any], guarded: bool = False) -> list[Any]:
    """Return the keys of items in the order of a real set. guarded: a guard holds that order.

    Objects in it are guarded: where they lie decides the order.
    """
    if len(items) > 1 and not guarded:
        note_order(vm.heap, items, order)
    objects = [(key, vm.entity(item)) for key, item in items.items() if item.__class__ is Object]
    held = {id(entity.real): (key, entity) for key, entity in objects}
    found = []
    for each in order:
        key, entity = held.get(id(each), (each, None))
        if entity is not None and entity.source is not None:
            vm.guard(entity.source, "ID_MATCH", each)
        found.append(key)
    return found


class SetHistory(list[Change]):
    """The payload of a set that existed: what was done to it."""


def add_to_history(entity: Entity, change: Change) -> None:
    """Add a change to the history of a set that existed."""
    history = entity.payload_if(SetHistory)
    if history is None:
        history = entity.payload = SetHistory()
    history.append(change)


def is_set(value: Value) -> bool:
    return issubclass(value.pytype, (set, frozenset))


def argument_again(vm: Machine, other: Value, theirs: dict[Any, Value], given: Any) -> Value | None:
    """Return a set, dict or list to repeat a method with, in the same order; None if a set has an unknown one."""
    if type(given) is frozenset:
        return other
    if is_set(other):
        return None if given is None else vm.new(set, dict(theirs), payload=list(given))
    if issubclass(other.pytype, dict):
        return vm.make_dict([(item, NONE) for item in theirs.values()])
    return vm.new(list, items=list(theirs.values()))


def record_update(
    vm: Machine, self: Object, method: str, after: dict[Any, Value], theirs: dict[Any, Value], other: Value, given: Any
) -> None:
    """Record that a method like `update` makes the items of a set to be those of `after`.

    `theirs`: the items of its argument, `other`. `given`: a real one in its order, None if that is not known.
    """
    entity, united = vm.entity(self), method == "update"
    if united and type(given) is frozenset:
        vm.heap.literals.append(given)
    if entity.fresh:
        order = entity.payload_if(set)
        if given is None:
            entity.payload = None
        elif order is not None:
            if isinstance(given, (set, frozenset)):  # whose own order is that in which its keys are added
                vm.heap.in_turn = [each for each in vm.heap.in_turn if each is not order]
            getattr(order, method)(given)
            if not united:
                vm.heap.thinned.append(order)
        return
    one_by_one = united and (given is None or type(given) is list)
    again = None if one_by_one else argument_again(vm, other, theirs, given)
    if again is not None:
        add_to_history(entity, (method, again))
        return
    before: dict[Any, Value] = entity.items
    for item in (item for key, item in before.items() if key not in after):
        add_to_history(entity, ("discard", item))
    for item in (item for key, item in after.items() if key not in before):
        add_to_history(entity, ("add", item))


def order_giving(heap: Heap, keys: list[Any], order: Iterable[Any]) -> Any:
    """Return a list, or a literal's frozenset, of which a set made anew is in that order; None if none was found."""
    wanted = list(order)
    others = itertools.permutations(wanted) if len(wanted) <= FEW else ()
    tried: Iterable[Any] = itertools.chain(
        (keys, wanted, wanted[::-1]), filter(stays_in_order, heap.literals), map(list, others)
    )
    return next((each for each in tried if list(set(each)) == wanted), None)


FEW = 6


def stays_in_order(keys: frozenset[Any]) -> bool:
    """Return whether a frozenset keeps its order as a constant: code objects make one anew of interned strings."""
    return list(frozenset(tuple(keys))) == list(keys)


@rebuilds(set)
def rebuild(emit: Emitter, entity: Entity) -> None:
    """Materialize a set in the order that it has."""
    items: dict[Any, Value] = entity.items or {}
    if any(by_code(key) for key in items):
        raise Restart(entity.born - 1)
    keys: Any = list(items)
    order = entity.payload
    constants = len(items) > 1 and all(item.__class__ is Known for item in items.values())
    if constants and isinstance(order, (set, list)):
        given, keys = keys, order_giving(emit.heap, keys, order)
        if keys != given:
            note_order(emit.heap, given)
    if keys is None:
        raise Restart(entity.born - 1)
    if type(keys) is frozenset:
        emit.op("BUILD", ("set", 0))
        emit.const(keys)
        emit.op("EXTEND", ("set", 1))
    else:
        for key in keys:
            emit.value(items[key])
        emit.op("BUILD", ("set", len(items)))
    if entity.pytype is not set:
        emit.instance(entity, "update")


@replays(set)
def replay(emit: Emitter, entity: Entity) -> None:
    """Repeat each change of a set that existed; none, if items only came and went, or were in it."""
    done = entity.payload_if(SetHistory) or ()
    there = [id(item) for item in entity.entry_items.values()]
    if entity.items.keys() == entity.entry_items.keys() and all(
        method == "update" or (method in ("add", "discard") and id(item) not in there) for method, item in done
    ):
        return
    for method, item in done:
        replay_call(emit, getattr(set, method), entity, *(() if item is None else (item,)))

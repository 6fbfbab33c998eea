"""WeakKeyDictionary, WeakValueDictionary, WeakSet: Python's own code is followed, on the references they hold.

Who has died meanwhile is gone from them by a callback. What lives is known where something is seen to hold it, so what
depends on how many there are asks each.
"""

from __future__ import annotations

import weakref
from typing import Any

from torchdynamo.capture.types import dict_updates, sets
from torchdynamo.capture.types.items import keys_of
from torchdynamo.capture.types.weakrefs import WeakReference
from torchdynamo.capture.vm.emitted_calls import push_call, replay_call
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, function, rebuilds
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.value import NONE, Known, Object, Value


def count(vm: Machine, refs: list[Value]) -> Value:
    """Return how many references are alive, which are asked one by one."""
    if any(ref.__class__ is not Object for ref in refs):
        raise Break("unsupported key", type="object")
    return Known(sum(vm.call(ref, [], {}) is not NONE for ref in refs))


@function(weakref.WeakSet.__len__)
def set_length(vm: Machine, self: Value) -> Value:
    return count(vm, list(sets.items_of(vm, vm.as_object(vm.getattr(self, "data"))).values()))


@function(weakref.WeakKeyDictionary.__len__)
def dict_length(vm: Machine, self: Value) -> Value:
    return count(vm, list(keys_of(vm, vm.as_object(vm.getattr(self, "data")))))


@function(weakref.WeakValueDictionary.__len__)
def value_dict_length(vm: Machine, self: Value) -> Value:
    return count(vm, [ref for _, ref in dict_updates.pairs(vm, vm.as_object(vm.getattr(self, "data")))])


# -- made again -------------------------------------------------------------------------------------------------------
def contents(emit: Emitter, entity: Entity, cls: type) -> list[tuple[Value, Value]]:
    """Push an empty container and return what is to be put in: keys with values, or each item twice."""
    if entity.pytype is not cls:
        raise Restart(entity.born - 1)
    push_call(emit, cls)
    emit.keep(entity)  # before its contents, which may lead back to it
    data: Any = entity.attrs["data"]
    items = emit.heap[data].items or {}
    return [(pair[0], pair[1]) if type(pair) is list else (pair, pair) for pair in items.values()]


def referent(emit: Emitter, ref: Any) -> Value:
    """Return what a reference refers to.

    Ends the graph if the frame made that: emitted code would hold it for too long.
    """
    entity = emit.heap[ref]
    if not entity.fresh or entity.payload_as(WeakReference).to_new:
        raise Restart(-1)
    return entity.payload_as(WeakReference).referent


@rebuilds(weakref.WeakKeyDictionary)
def rebuild_key_dict(emit: Emitter, entity: Entity) -> None:
    for ref, value in contents(emit, entity, weakref.WeakKeyDictionary):
        put(emit, entity, referent(emit, ref), value)


@rebuilds(weakref.WeakValueDictionary)
def rebuild_value_dict(emit: Emitter, entity: Entity) -> None:
    for key, ref in contents(emit, entity, weakref.WeakValueDictionary):
        put(emit, entity, key, referent(emit, ref))


def put(emit: Emitter, entity: Entity, key: Value, value: Value) -> None:
    emit.value(value)
    emit.local(entity)
    emit.value(key)
    emit.op("SETITEM")


@rebuilds(weakref.WeakSet)
def rebuild_set(emit: Emitter, entity: Entity) -> None:
    for ref, _ in contents(emit, entity, weakref.WeakSet):
        replay_call(emit, weakref.WeakSet.add, entity, referent(emit, ref))

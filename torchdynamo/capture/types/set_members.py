"""Membership in a set that was there and holds objects that only identity tells apart: modules, parameters, instances.

No path leads to an item of a set, so these objects are no values here. Which they are is guarded, and so is the
object that is looked for.
"""

from __future__ import annotations

from typing import Any

import torch

from torchdynamo.capture.types.keys import sourceable
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.keys import IDENTITY_HASHES, Ref
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import Known, Object, TensorNode, Value

PLAIN_EQUALITY: Any = object.__eq__
TENSORS = (torch.Tensor, torch.nn.Parameter)


def told_by_identity(item: Any) -> bool:
    """Return whether only identity tells an item of a set apart from others."""
    cls = type(item)
    return (cls.__hash__ in IDENTITY_HASHES and cls.__eq__ is PLAIN_EQUALITY) or cls in TENSORS


def members(real: Any) -> list[Any]:
    """Return the items of a real set or frozenset, without asking the program."""
    return list((set if isinstance(real, set) else frozenset).__iter__(real))


def holds_objects(real: Any) -> bool:
    """Return whether a real set holds objects told apart by identity, and else nothing but what a path can name."""
    others = [item for item in members(real) if not sourceable(item)]
    return bool(others) and all(map(told_by_identity, others))


def is_unread(vm: Machine, value: Value) -> bool:
    """Return whether a set is as it was at entry, and holds objects told apart by identity."""
    if value.__class__ is not Object:
        return False
    entity = vm.entity(value)
    return entity.items is None and entity.real is not MISSING and holds_objects(entity.real)


def guarded_members(vm: Machine, value: Object) -> list[Any]:
    """Return the items of a set that is as it was at entry, and guard which they are."""
    entity = vm.entity(value)
    assert entity.source is not None
    found = members(entity.real)
    vm.guard(entity.source, "SET_CONTENTS", frozenset(found))
    return found


def holds(vm: Machine, value: Object, key: Any, item: Value) -> bool:
    """Return whether an item, hashed to `key`, is in a set that holds objects told apart by identity."""
    if key.__class__ is Ref:
        place, obj = found_at(vm, item)
        found, source = any(each is obj for each in guarded_members(vm, value)), vm.entity(value).source
        if place is not None and source is not None:
            vm.guard(*((place, "ID_MATCH", obj) if found else (source, "NOT_KEYED", place)))
        return found
    if not sourceable(key):
        raise Break("unsupported key", type="object")
    return key in set(filter(sourceable, guarded_members(vm, value)))


def found_at(vm: Machine, item: Value) -> tuple[Source | None, Any]:
    """Return where an object was at entry, and the object; no source for one that the frame has made."""
    if item.__class__ is Object:
        entity = vm.entity(item)
        return entity.source, entity.real
    if item.__class__ is Known:
        return item.source, item.obj
    assert isinstance(item, TensorNode)
    return item.source, vm.input_objects.get(item.node)

"""Inline functions with a cache (`lru_cache`) that are asked about numbers of the graph: each has a result of its own.

That is right where nobody can tell: the function leaves nothing behind, and what it gives, which the cache would give
to other callers too, is neither changed nor handed out. Else the capture is run again, with the numbers as constants.
"""

from __future__ import annotations

from typing import Any

import torch

from torchdynamo.capture.torch.symbols import unknown
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.signals import Assumption, Break, Retry
from torchdynamo.core.value import Object, Symbol, TensorNode, Value

SEQUENCES = (tuple, list, torch.Size, slice)


def holds_number(vm: Machine, value: Value) -> bool:
    """Return whether a value is a number of the graph that existed at entry, or a tuple with one."""
    if value.__class__ is Object and value.pytype in (tuple, torch.Size):
        return any(holds_number(vm, item) for item in vm.iterate(value))
    return value.__class__ is Symbol and not unknown(vm, value)


def inline(vm: Machine, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Inline the function that a cache is for, and return its result."""
    mark = vm.effects.mark()
    try:
        result = vm.call(function, args, kwargs)
    except Break:
        raise Retry(Assumption.CACHES) from None
    if vm.effects.since(mark) or not keep(vm, result):
        raise Retry(Assumption.CACHES)
    return result


def contents(entity: Entity) -> Any:
    """Return what an object holds, by identity."""
    items = entity.items
    held = list(map(id, items.values() if isinstance(items, dict) else items)) if is_plain(items) else id(items)
    return entity.touched, [(name, id(value)) for name, value in entity.attrs.items()], held


def is_plain(items: Any) -> bool:
    return isinstance(items, (list, tuple, dict))


def keep(vm: Machine, value: Value) -> bool:
    """Note the containers in a result. Return whether nothing else in it can change."""
    if value.__class__ is TensorNode:
        return False
    if value.__class__ is not Object or not vm.entity(value).fresh:
        return True
    if value.pytype in SEQUENCES:
        parts = list(vm.entity(value).items or ())
    elif value.pytype is dict:
        parts = [part for pair in vm.dict_items(value) for part in pair]
    else:
        return False
    if value.pytype in (list, dict):
        vm.kept[value.ref] = contents(vm.entity(value))
    return all(keep(vm, part) for part in parts)


def were_changed(vm: Machine) -> bool:
    """Return whether the frame has changed what a cache keeps."""
    return any(contents(vm.heap.entities[ref]) != held for ref, held in vm.kept.items())

"""Dicts that are iterated by position: a version rests on how many items there are, in which order, and what they are.

They are those with keys that no path can name (modules, tensors), and those whose keys are numbers that run on, like
those under which hooks are registered. What is registered anew in each step has another number each time. The numbers
vary, as any that the frame is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch

from torchdynamo.capture.types import identity
from torchdynamo.capture.types.keys import sourceable
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.keys import IDENTITY_HASHES
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source, keys_in_order
from torchdynamo.core.value import Lazy, Symbol, Value

MANY = 10_000  # keys that are still compared with at each call


def found_by_position(vm: Machine, entity: Entity) -> bool:
    """Return whether a dict was there at entry, has not been written to, and has keys that no path can name, or had
    other numbers for keys in an earlier call.
    """
    if entity.real is MISSING or entity.touched or entity.payload is not None or entity.items_at >= 0:
        return False
    if not all(map(sourceable, dict.keys(entity.real))):
        return dict.__len__(entity.real) <= MANY and not any(map(hashed_by_program, dict.keys(entity.real)))
    varying = vm.builder.numbers.varying
    found = any(source.how == "key_at" and source.base is entity.source for source in varying)
    return (found or entity.source in vm.numbered_hooks) and all(type(key) is int for key in dict.keys(entity.real))


def hashed_by_program(key: Any) -> bool:
    """Return whether code of the program's says what a key's hash is: C asks it at other times than a capture would."""
    if type(key) is tuple:
        return any(map(hashed_by_program, key))
    code: Any = type(key).__hash__
    return type(code) is FunctionType and code not in (*IDENTITY_HASHES, torch.Tensor.__hash__)


def each_by_position(
    vm: Machine, entity: Entity, part: Callable[[Value, Value], Value]
) -> tuple[Sequence[tuple[int, Any]], Callable[[tuple[int, Any]], Value]]:
    """Return the positions with the keys of such a dict, and what gives `part` of the item at one."""
    assert entity.source is not None
    keys = keys_in_order(entity.real)
    vm.guard(entity.source, "LENGTH", len(keys))
    if any(map(identity.may_be_id, keys)):
        identity.note_address_key(vm)

    def step(entry: tuple[int, Any]) -> Value:
        at, key = entry
        if entity.touched:
            raise Break("unknown iterator", type="dict that changes")
        item = vm.wrap(dict.__getitem__(entity.real, key), Source("value_at", entity.source, at))
        made = part(Lazy(type(key), Source("key_at", entity.source, at)), item)
        return vm.look(made) if made.__class__ is Lazy else made

    return list(enumerate(keys)), step


def holds_running_key(vm: Machine, entity: Entity, key: Value) -> bool | None:
    """Return whether a dict that existed has a key that runs on in another dict, guarded whatever its number is.

    None where it is another key, or a dict of which more must be known.
    """
    if not isinstance(key, (Symbol, Lazy)) or key.source is None or key.source.how != "key_at" or entity.source is None:
        return None
    if entity.real is MISSING or entity.touched or entity.payload is not None:
        return None
    if not all(type(other) is int for other in dict.keys(entity.real)):
        return None
    found = dict.__contains__(entity.real, key.source.load(vm.roots))
    vm.guard(entity.source, "KEYED" if found else "NOT_KEYED", key.source)
    return found

"""Find frames that change what their own capture rests on: `if self.table is None: self.table = make()`.

Code compiled for such a frame could not run again: its guards fail as soon as its effects are there. What counts is
what lasts from call to call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from types import CodeType
from typing import Any

import torch

from torchdynamo.capture.capture import Capture
from torchdynamo.capture.types.identity import is_number_of
from torchdynamo.capture.vm.effect_kinds import EffectKind
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.persistence import lasts
from torchdynamo.capture.vm.write_places import WritePlace, places
from torchdynamo.core.learned import record
from torchdynamo.core.source import Guard, Source
from torchdynamo.core.value import ABSENT, Known, Object, Symbol, TensorNode, Value, is_none

NUMBERS = (int, float)
# What guards ask of a container itself: whether it still holds for these keys. What is put in under a number that runs
# on, as a hook, is taken out again by somebody: nobody has it there twice.
HOLDS: dict[str, Callable[[Any, list[Any]], bool]] = {
    "TYPE_MATCH": lambda arg, keys: True,
    "NO_KEY": lambda arg, keys: arg not in keys,
    "HAS_KEY": lambda arg, keys: True,  # what is taken away is not there to be taken next time
    "NO_FINALIZER": lambda arg, keys: True,
    "LENGTH": lambda arg, keys: True,  # what grows will grow again
    "PLAIN_ITEMS": lambda arg, keys: True,
    "SET_CONTENTS": lambda arg, keys: arg == frozenset(keys),
    "DICT_KEYS": lambda arg, keys: len([key for key in keys if not is_number_of(key)]) <= len(arg),
}


def goes_on(before: Capture, continuation: CodeType) -> None:
    """Note the places that the capture has written to: code after the graph break may write to them again."""
    written = {(place.owner, place.name) for place in places(before.machine)}
    record(continuation).written_before |= record(before.code).written_before | written


def undoes_itself(capture: Capture, own: Collection[str]) -> bool:
    """Return whether a guard of the capture fails once its effects are done.

    Each call has `own` variables of its own.
    """
    vm = capture.machine
    written = lasting(vm, own)
    changed = [entity for entity in capture.changed if entity.touched and lasts(vm.roots, entity.source, own)]
    if not written and not changed:
        return False
    on: dict[Source, list[Guard]] = {}
    read: set[Source] = set()
    for guard in vm.guards.values():
        on.setdefault(guard.source, []).append(guard)
        path: Source | None = guard.source
        while path is not None and path not in read:
            read.add(path)
            path = path.base
    begun = record(capture.code).written_before
    for place in written:
        if place.value is ABSENT or (place.owner, place.name) in begun:
            continue
        source, value = place.source, place.value
        if source in read and not alike(vm, vm.by_source.get(source), value, read, source):
            return True
        above = source.base
        if above is not None and any(fails(vm, guard, source, value, read) for guard in on.get(above, ())):
            return True
    return any(keys_differ(entity, on) for entity in changed)


def lasting(vm: Machine, own: Collection[str]) -> list[WritePlace]:
    """Return the places that belong to something that outlives the call."""
    return [place for place in places(vm) if place.home is None or lasts(vm.roots, place.home, own)]


def counted(capture: Capture, own: Collection[str]) -> Iterator[Source]:
    """Yield what the frame takes for constant and changes itself, so that the next call begins with something else.

    These are numbers, and objects that it replaces on classes, each attribute of which is taken for what it is.
    """
    vm = capture.machine
    for place in lasting(vm, own):
        old = vm.by_source.get(place.source)
        yield from changed_numbers(vm, old, place.value, place.source)
        if place.kind is EffectKind.CLASS and is_replaced(old, place.value):
            yield place.source


def is_replaced(old: Value | None, new: Value) -> bool:
    """Return whether an object, or a tensor, has another of its type in its place."""
    if isinstance(old, Object) and isinstance(new, Object):
        return old.pytype is new.pytype and old.ref != new.ref
    return isinstance(old, TensorNode) and isinstance(new, TensorNode) and old.node is not new.node


def changed_numbers(vm: Machine, old: Value | None, new: Value, source: Source) -> Iterator[Source]:
    """Yield constants that another number takes the place of, also among sizes."""
    if isinstance(old, Known) and type(old.obj) in NUMBERS:
        same = isinstance(new, Known) and new.obj == old.obj
        if type(old.obj) is number_type(new) and not same:
            yield source
        return
    for at, pair in enumerate(part_by_part(vm, old, new)):
        yield from changed_numbers(vm, *pair, Source("item", source, at))


def part_by_part(vm: Machine, old: Value | None, new: Value) -> list[tuple[Value, Value]]:
    """Return the parts of a tuple, or sizes, each with what takes its place in another of the same type and length."""
    before, after = parts(vm, old), parts(vm, new)
    alike = before is not None and after is not None and old is not None and old.pytype is new.pytype
    return list(zip(before, after, strict=True)) if alike and len(before) == len(after) else []  # type: ignore[arg-type]


def parts(vm: Machine, value: Value | None) -> list[Value] | None:
    """Return the parts of a tuple, or sizes, as far as they have been looked at."""
    if isinstance(value, Known) and type(value.obj) is torch.Size:
        return [Known(part) for part in value.obj]
    if not isinstance(value, Object) or value.pytype not in (tuple, torch.Size):
        return None
    items = vm.entity(value).items
    return list(items) if isinstance(items, (list, tuple)) else None


def left(capture: Capture) -> Iterator[Source]:
    """Return the places where the frame leaves numbers of its graph, which are no constants in the next call."""
    return (place.source for place in places(capture.machine) if isinstance(place.value, Symbol))


def spends_gradients(vm: Machine) -> bool:
    """Return whether gradients that the frame has looked at are gone when it is done: the next call brings others."""
    for place in places(vm):
        if place.kind is EffectKind.TENSOR and place.name == "grad" and is_none(place.value):
            found = vm.by_source.get(Source("attr", place.home, "grad"))
            if found is not None and found.pytype is not type(None):
                return True
    return False


def fails(vm: Machine, guard: Guard, source: Source, value: Value, read: set[Source]) -> bool:
    """Return whether a guard on an object fails once a value is written to one of its names."""
    if guard.kind == "NO_KEY":
        return type(guard.arg) is type(source.arg) and bool(guard.arg == source.arg)
    if guard.kind != "CLASS_ATTR" or guard.arg[0] != source.arg:
        return False
    old = vm.by_source.get(source) or vm.heap.by_id.get(id(guard.arg[1])) or Known(guard.arg[1])
    return guard.arg[1] is ABSENT or not alike(vm, old, value, read, source)


def alike(vm: Machine, old: Value | None, new: Value, read: set[Source], source: Source) -> bool:
    """Return whether guards that held for the old value hold for the new one."""
    if old is new or getattr(new, "source", None) is source:
        return True
    if old is not None and number_type(old) in NUMBERS:  # a number that changes will change again: nothing is settled
        return number_type(new) is number_type(old)
    if isinstance(old, Known) and isinstance(new, Known):
        return old.obj is new.obj or (type(old.obj) is type(new.obj) and bool(old.obj == new.obj))
    if isinstance(old, TensorNode) and isinstance(new, TensorNode):
        return meta(old) == meta(new)
    pairs = part_by_part(vm, old, new) if isinstance(old, Object) else []
    if pairs:
        places = [Source("item", source, at) for at in range(len(pairs))]
        return all(at not in read or alike(vm, *pair, read, at) for at, pair in zip(places, pairs, strict=True))
    if isinstance(old, Object) and isinstance(new, Object):
        below = any(each.base is source for each in read)
        return old.ref == new.ref or (old.pytype is new.pytype and not below)
    return False


def number_type(value: Value) -> type | None:
    return value.pytype if isinstance(value, (Known, Symbol)) else None


def meta(tensor: TensorNode) -> tuple[Any, ...]:
    """Return what the guard on a tensor compares. Sizes that vary go by what they are made of: no fact is asked for."""
    fake = tensor.fake
    sizes = tuple(each.node.expr if isinstance(each, torch.SymInt) else each for each in (*fake.shape, *fake.stride()))
    return tensor.pytype, fake.dtype, fake.device, fake.requires_grad, sizes


def keys_differ(entity: Entity, on: dict[Source, list[Guard]]) -> bool:
    """Return whether a guard on a container fails for what is in it now."""
    assert entity.source is not None
    items = entity.items
    if isinstance(items, dict):
        keys = list(items)
    elif isinstance(items, list):
        keys = list(range(len(items)))
    else:
        return any(guard.kind != "TYPE_MATCH" for guard in on.get(entity.source, ()))
    return any(g.kind not in HOLDS or not HOLDS[g.kind](g.arg, keys) for g in on.get(entity.source, ()))

"""Find the state that a call carries over to the next one: read and changed by it, other than contents of tensors.

An exported program keeps parameters and buffers only. It repeats what the captured call did, so it would go on with the
state of the first call for ever.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
import torch.fx

from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.write_places import places
from torchdynamo.core.source import Guard, Source
from torchdynamo.core.value import ABSENT, Known, Object, Symbol, TensorNode, Value
from torchdynamo.exporting.capturing import Captured
from torchdynamo.exporting.rebuilt import RebuiltObjects
from torchdynamo.exporting.results import Rebinding


def carried_over(made: Captured, gm: torch.fx.GraphModule, rebindings: list[Rebinding]) -> list[str]:
    """Return the places that a call reads and leaves with something else in them. gm: the closed graph."""
    vm = made.found.capture.machine
    inputs = set(gm.graph.find_nodes(op="placeholder"))
    kept = {each.source for each in rebindings}
    read, missed = looked_at(vm)
    rebuilt = RebuiltObjects(vm)
    found: dict[str, None] = {}
    last = {place.source: place for place in places(vm)}
    for place in last.values():
        if made.call.is_argument(place.source) or place.source in kept:
            continue
        old = vm.by_source.get(place.source)
        if isinstance(old, Symbol) and is_unused(vm, old, inputs):
            continue
        if isinstance(old, TensorNode) and old.node not in inputs and is_as_good(vm, old, place.value):
            continue
        made_here = place.source in missed and place.value is not ABSENT
        changed = place.source in read and old is not None and not is_same(old, place.value, place.source)
        changed = changed and not rebuilt.is_alike(old, place.value)
        if made_here or changed:
            found[str(place.source)] = None
    found.update((str(source), None) for source in grown(made))
    return list(found)


def looked_at(vm: Machine) -> tuple[set[Source], set[Source]]:
    """Return the places that the capture has looked at, and those where it found nothing."""
    read: set[Source] = {value.source for value in vm.inputs if value.source is not None}
    missed: set[Source] = set()
    for guard in vm.guards.values():
        place: Source | None = guard.source
        while place is not None and place not in read:
            read.add(place)
            place = place.base
        if guard.kind == "NO_KEY":
            missed.add(Source("key", guard.source, guard.arg))
    return read, missed


def is_same(old: Value, new: Value, place: Source) -> bool:
    """Return whether a place holds at the end what it held at entry."""
    if old is new or getattr(new, "source", None) is place:
        return True
    if isinstance(old, Known) and isinstance(new, Known):
        return old.obj is new.obj or (type(old.obj) is type(new.obj) and bool(old.obj == new.obj))
    return isinstance(old, Object) and isinstance(new, Object) and old.ref == new.ref


def is_unused(vm: Machine, number: Symbol, inputs: set[torch.fx.Node]) -> bool:
    """Return whether neither the graph nor a condition depends on a number: it is only counted."""
    symbols = {guard.expr for guard in vm.builder.numbers.env.guards}
    own = number.fake.node.expr
    return number.node not in inputs and not any(own in expr.free_symbols for expr in symbols)


def is_as_good(vm: Machine, old: TensorNode, new: Value) -> bool:
    """Return whether the next call does with the new tensor what this one did with the old, which no operator takes."""
    if not isinstance(new, TensorNode) or description(old) != description(new) or is_told_apart(vm, old):
        return False
    asked = {guard.kind for guard in vm.guards.values() if old.source in (guard.source, guard.source.base)}
    return asked <= {"TENSOR_MATCH"}


def is_told_apart(vm: Machine, tensor: TensorNode) -> bool:
    """Return whether something may rest on which tensor this is: it lies in two places, is compared or is a key."""
    found = [
        source for source, value in vm.by_source.items() if isinstance(value, TensorNode) and is_one(value, tensor)
    ]
    keys = {source for told in vm.told_apart.values() for source in told}
    compared = (guard.arg for guard in vm.guards.values())
    return len(found) > 1 or tensor.source in keys or any(map(functools.partial(names, tensor.source), compared))


def is_one(tensor: TensorNode, other: TensorNode) -> bool:
    return tensor.node is other.node or tensor.fake is other.fake


def names(source: Source | None, arg: object) -> bool:
    """Return whether the argument of a guard is this place, or has it in it."""
    return arg is source or (isinstance(arg, tuple) and any(names(source, each) for each in arg))


def description(tensor: TensorNode) -> tuple[object, ...]:
    """Return what the guards on a tensor tell of it."""
    fake = tensor.fake
    sizes = (str(fake.shape), str(fake.stride())) if fake.layout is torch.strided else (str(fake.shape), None)
    return tensor.pytype, fake.dtype, fake.device, fake.layout, fake.requires_grad, *sizes


def grown(made: Captured) -> Iterator[Source]:
    """Yield the lists and other containers that the call has asked about and changed."""
    vm = made.found.capture.machine
    asked: dict[Source, list[Guard]] = {}
    for guard in vm.guards.values():
        asked.setdefault(guard.source, []).append(guard)
    for entity in made.found.capture.changed:
        source = entity.source
        if source is None or made.call.is_argument(source) or not entity.touched or isinstance(entity.items, dict):
            continue
        if any(guard.kind not in ("TYPE_MATCH", "SET_CONTENTS") for guard in asked.get(source, ())):
            yield source

"""slice: one of constants is a constant; of others, three values."""

from __future__ import annotations

from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, enters, models, rebuilds
from torchdynamo.capture.vm.wrap import CONSTANTS
from torchdynamo.core.source import Source
from torchdynamo.core.value import Known, Value

PARTS = ("start", "stop", "step")


@enters(slice)
def enter(vm: Machine, obj: slice, source: Source) -> Value:
    parts = {Source("attr", source, name): getattr(obj, name) for name in PARTS}
    if all(type(part) in CONSTANTS for part in parts.values()) and parts.keys().isdisjoint(vm.builder.numbers.varying):
        vm.guard(source, "EQUALS_MATCH", obj)
        return Known(obj, source)
    vm.guard(source, "TYPE_MATCH", slice)
    value = vm.heap.adopt(obj, source)
    vm.entity(value).items = [vm.wrap(part, where) for where, part in parts.items()]
    return value


def part(name: str, at: int) -> None:
    @models(slice, f".{name}")
    def row(vm: Machine, self: Value) -> Value:
        if self.__class__ is Known:
            return vm.constant(getattr(self.obj, name))
        found: Value = vm.entity(vm.as_object(self)).items[at]
        return found


for _at, _name in enumerate(PARTS):
    part(_name, _at)


@rebuilds(slice)
def rebuild(emit: Emitter, entity: Entity) -> None:
    for part in entity.items:
        emit.value(part)
    emit.op("SLICE", len(PARTS))

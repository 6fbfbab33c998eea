"""weakref.ref: calling one that existed at entry reads what it refers to, or None."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from torchdynamo.capture.heap import MISSING, Entity
from torchdynamo.capture.model import Emitter, models, rebuilds
from torchdynamo.capture.signals import Break
from torchdynamo.capture.source import Source
from torchdynamo.capture.value import NONE, Graphed, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine


@models(weakref.ReferenceType, "__new__")
def new(vm: Machine, cls: Known, obj: Value, callback: Value = NONE) -> Value:
    """A reference to what existed at entry: that something made in the frame still lives cannot be told."""
    if cls.obj is not weakref.ReferenceType or callback is not NONE or not existed(vm, obj):
        raise Break("unknown call", name="weakref.ref")
    return vm.new(weakref.ReferenceType, **{"<referent>": obj})


def existed(vm: Machine, obj: Value) -> bool:
    if obj.__class__ is Object:
        return vm.entity(obj).real is not MISSING
    return obj.__class__ is Graphed and obj.source is not None


@models(weakref.ReferenceType, "__init__")
def init(vm: Machine, self: Value, *args: Value) -> Value:
    return NONE


@models(weakref.ReferenceType, "__call__")
def call(vm: Machine, self: Object) -> Value:
    entity = vm.entity(self)
    if entity.real is MISSING:
        return entity.attrs["<referent>"]
    assert entity.source is not None
    return vm.wrap(entity.real(), Source("call", entity.source, ()))


@rebuilds(weakref.ReferenceType)
def rebuild(emit: Emitter, entity: Entity) -> None:
    emit.function(weakref.ref)
    emit.value(entity.attrs["<referent>"])
    emit.op("CALL", (1, ()))

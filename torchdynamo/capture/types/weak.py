"""weakref.ref: calling one that existed at entry reads what it refers to, or None.

What the frame made lives as long as something refers to it: one is followed where a variable is seen to do so.
"""

from __future__ import annotations

import types
import weakref
from typing import TYPE_CHECKING

from torchdynamo.capture.heap import MISSING, Entity
from torchdynamo.capture.model import Emitter, is_open, models, rebuilds
from torchdynamo.capture.signals import Break, Restart
from torchdynamo.capture.source import Source
from torchdynamo.capture.value import NONE, Graphed, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine


@models(weakref.ReferenceType, "__new__")
def new(vm: Machine, cls: Known, obj: Value, callback: Value = NONE) -> Value:
    """A reference without a callback."""
    if cls.obj is not weakref.ReferenceType or callback is not NONE or not (existed(vm, obj) or takes_references(obj)):
        raise Break("unknown call", name="weakref.ref")
    return vm.new(weakref.ReferenceType, note=not existed(vm, obj), **{"<referent>": obj})


def existed(vm: Machine, obj: Value) -> bool:
    if obj.__class__ is Object:
        return vm.entity(obj).real is not MISSING
    return obj.__class__ is Graphed and obj.source is not None


def takes_references(obj: Value) -> bool:
    """An instance of a class that says it does, by its layout."""
    return obj.__class__ is Object and obj.pytype.__weakrefoffset__ != 0 and is_plain(obj.pytype)


def is_plain(cls: type) -> bool:
    return all(is_open(base) for base in cls.__mro__[:-1])


def is_held(vm: Machine, obj: Object) -> bool:
    """Whether a variable of a frame that is under way refers to the object, by itself or through attributes."""
    seen: set[int] = set()
    left = [value for frame in vm.frames for value in (*frame.locals.values(), *frame.cells.values())]
    while left:
        value = left.pop()
        if value.__class__ is not Object or value.ref in seen:
            continue
        if value.ref == obj.ref:
            return True
        seen.add(value.ref)
        entity = vm.entity(value)
        if entity.pytype is types.CellType or (entity.fresh and is_plain(entity.pytype)):
            left += entity.attrs.values()
        elif entity.fresh and entity.pytype in (list, tuple):
            left += entity.items
    return False


@models(weakref.ReferenceType, "__init__")
def init(vm: Machine, self: Value, *args: Value) -> Value:
    return NONE


@models(weakref.ReferenceType, "__call__")
def call(vm: Machine, self: Object) -> Value:
    entity = vm.entity(self)
    if entity.real is MISSING:
        referent = entity.attrs["<referent>"]
        if not existed(vm, referent) and not is_held(vm, vm.as_object(referent)):
            raise Break("unknown call", name="weakref.ref")
        return referent
    assert entity.source is not None
    return vm.wrap(entity.real(), Source("call", entity.source, ()))


@rebuilds(weakref.ReferenceType)
def rebuild(emit: Emitter, entity: Entity) -> None:
    """Not of what the frame made: replacement code would hold that for longer than the program does."""
    referent = entity.attrs["<referent>"]
    if entity.note:
        raise Restart(-1)
    emit.function(weakref.ref)
    emit.value(referent)
    emit.op("CALL", (1, ()))

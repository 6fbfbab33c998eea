"""weakref.ref: calling one that existed at entry reads what it refers to, or None.

What the frame made lives as long as something refers to it: one is followed where a variable is seen to do so.
"""

from __future__ import annotations

import collections
import types
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from torchdynamo._native import type_name
from torchdynamo.capture.types.threads import LOCKS
from torchdynamo.capture.vm import operators, sameness
from torchdynamo.capture.vm.effect_kinds import ATTRIBUTES, EffectKind, Write
from torchdynamo.capture.vm.emitted_calls import push_call
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.keys import IDENTITY_HASHES, Keyed, Ref
from torchdynamo.capture.vm.lookup import instance_dict, is_class
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import HASH_KEY, HOLDS, IDENTICAL, Emitter, is_open, models, rebuilds
from torchdynamo.capture.vm.namespaces import own_dict
from torchdynamo.capture.vm.wrap import CONSTANTS
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.source import Source
from torchdynamo.core.value import NONE, Known, Lazy, Object, TensorNode, Value, boolean


class WeakReference(NamedTuple):
    """The payload of a reference that the frame made."""

    referent: Value
    callback: Value
    to_new: bool  # the frame made what it refers to


@HOLDS.register(weakref.ReferenceType)
def holds(entity: Entity) -> dict[str, Value]:
    made = entity.payload_as(WeakReference)
    return {"referent": made.referent, "callback": made.callback}


@models(weakref.ReferenceType, "__new__")
def new(vm: Machine, cls: Known, obj: Value, callback: Value = NONE) -> Value:
    """Make a weak reference. Its callback is noticed only where the reference outlives the frame."""
    if cls.obj not in KINDS or not (existed(vm, obj) or takes_references(obj)):
        if issubclass(obj.pytype, REFUSING) and obj.pytype.__weakrefoffset__ == 0:
            raise vm.error(TypeError, f"cannot create weak reference to {type_name(obj.pytype)!r} object")
        raise Break("unknown call", name="weakref.ref")
    return vm.new(cls.obj, payload=WeakReference(obj, callback, not existed(vm, obj)))


KINDS = (weakref.ReferenceType, weakref.KeyedRef)
HOLD_NOTHING = (*CONSTANTS, *KINDS)
REFUSING = (bool, int, float, complex, str, bytes, tuple, list, dict, type(None))


def existed(vm: Machine, obj: Value) -> bool:
    if obj.__class__ is Object:
        return vm.entity(obj).real is not MISSING
    if obj.__class__ is Known:
        of_old = isinstance(obj.obj, (type, types.FunctionType, types.ModuleType))
        return of_old and id(obj.obj) not in vm.made_classes
    return obj.__class__ is TensorNode and obj.source is not None


def takes_references(obj: Value) -> bool:
    """Return whether an object can be referred to weakly: its class says so by its layout, or is made in the frame."""
    if obj.__class__ is Known:
        return is_class(obj.obj)
    made = obj.__class__ is Object and obj.pytype.__weakrefoffset__ != 0
    return made and (obj.pytype is collections.OrderedDict or is_plain(obj.pytype))


def is_plain(cls: type) -> bool:
    return all(is_open(base) for base in cls.__mro__[:-1])


def is_held(vm: Machine, obj: Value) -> bool:
    """Return whether a variable of a frame that is under way refers to the object, by itself or through attributes."""
    seen: set[int] = set()
    left = [value for frame in vm.frames for value in (*frame.locals.values(), *frame.cells.values())]
    while left:
        value = left.pop()
        if value.__class__ is Known and obj.__class__ is Known and value.obj is obj.obj:
            return True
        if value.__class__ is not Object or value.ref in seen:
            continue
        if obj.__class__ is Object and value.ref == obj.ref:
            return True
        seen.add(value.ref)
        entity = vm.entity(value)
        if entity.pytype is types.CellType or (entity.fresh and is_plain(entity.pytype)):
            left += entity.attrs.values()
        elif entity.fresh and entity.pytype in (list, tuple):
            left += entity.items
    return False


def lives(vm: Machine, obj: Value) -> bool:
    """Return whether the object is surely alive: what the frame made, or perhaps alone has, is seen to be held."""
    if obj.__class__ is TensorNode or obj is NONE:
        return True
    source = vm.entity(obj).source if isinstance(obj, Object) else getattr(obj, "source", None)
    came = source is not None and source.how == "local"
    if (came or not existed(vm, obj)) and not is_held(vm, obj):
        return False
    return not existed(vm, obj) or not has_let_go(vm)


@IDENTICAL.register(weakref.ReferenceType)
def is_same(vm: Machine, one: Object, other: Object) -> bool:
    """Return whether two references are one object. Without callback, an object has only one."""
    first, second = vm.entity(one), vm.entity(other)
    if one.ref == other.ref or (first.real is not MISSING and second.real is not MISSING):
        return sameness.identical(vm, one, other)
    if first.real is not MISSING or second.real is not MISSING:
        raise Break("unknown call", name="weakref.ref")
    mine, others = first.payload_as(WeakReference), second.payload_as(WeakReference)
    if mine.callback is not NONE or others.callback is not NONE:
        return False
    return sameness.identical(vm, mine.referent, others.referent)


@models(weakref.ReferenceType, "__eq__")
def equal(vm: Machine, self: Object, other: Value) -> Value:
    """Compare references by their referents, or by identity where a referent has gone."""
    if not isinstance(other, Object) or not issubclass(other.pytype, weakref.ReferenceType):
        return Known(NotImplemented)
    one, another = call(vm, self), call(vm, other)
    if one is NONE or another is NONE:
        return boolean(vm.identical(self, other))
    return vm.binary("==", one, another)


models(weakref.ReferenceType, "__ne__")(operators.inverting(equal))


@models(weakref.ReferenceType, "__init__")
def init(vm: Machine, self: Value, *args: Value) -> Value:
    return NONE


@models(weakref.ReferenceType, "__call__")
def call(vm: Machine, self: Object) -> Value:
    entity = vm.entity(self)
    if entity.real is MISSING:
        found = entity.payload_as(WeakReference).referent
    else:
        assert entity.source is not None
        found = vm.wrap(weakref.ref.__call__(entity.real), Source("call", entity.source, ()))
    if not lives(vm, found):
        raise Break("unknown call", name="weakref.ref")
    return found


def has_let_go(vm: Machine) -> bool:
    """Return whether the frame took something out of what was there before, which may have been all that held it."""
    return not keeps_arguments(vm) or any(lets_go(vm, write) for write in vm.effects.pending())


def lets_go(vm: Machine, write: Write) -> bool:
    """Return whether a value that is written over held an object. One that is not known here may have."""
    if write.kind is EffectKind.ITEMS:
        return not still_holds(vm, write.owner)
    if write.kind in ATTRIBUTES:
        return is_object(own_dict(write.owner), write.name)
    if write.kind in (EffectKind.NAME, EffectKind.FUNCTION):
        return is_object(write.owner.real, write.name)
    if write.kind is EffectKind.CLASS:
        return id(write.owner) not in vm.made_classes and is_object(write.owner.__dict__, write.name)
    if write.kind is EffectKind.TENSOR:
        real = vm.input_objects.get(write.owner.node)
        return real is not None and write.name != "grad" and is_object(instance_dict(real), write.name)
    return write.kind not in (EffectKind.DEFERRED, EffectKind.STATE)


def is_object(held: Mapping[str, Any] | None, name: str) -> bool:
    """Return whether what lies under a name is more than a constant; of slots nobody knows."""
    return held is None or (name in held and type(held[name]) not in HOLD_NOTHING)


def keeps_arguments(vm: Machine) -> bool:
    """Return whether the arguments of the frame are in variables still."""
    held = {id(real_of(vm, each)) for frame in vm.frames for each in (*frame.locals.values(), *frame.stack)}
    cells = [vm.entity(cell).attrs.get("cell_contents") for cell in vm.frames[0].cells.values()]
    held |= {id(real_of(vm, each)) for each in cells if each is not None}
    return all(
        id(obj) in held or type(obj) in HOLD_NOTHING or isinstance(obj, torch.Tensor)
        for obj in vm.roots.locals.values()
    )


def still_holds(vm: Machine, entity: Entity) -> bool:
    """Return whether all that a container held at entry is in it."""
    if type(entity.real) in LOCKS:
        return True
    if type(entity.real) not in (list, dict, set, collections.OrderedDict):
        return False
    now = entity.items.values() if isinstance(entity.items, dict) else entity.items
    held = {id(real_of(vm, part)) for each in now for part in (each if type(each) is list else (each,))}
    before = [*entity.real, *(entity.real.values() if isinstance(entity.real, dict) else ())]
    return all(id(obj) in held or type(obj) in HOLD_NOTHING or isinstance(obj, torch.Tensor) for obj in before)


def real_of(vm: Machine, value: Value) -> Any:
    if value.__class__ is Object:
        return vm.entity(value).real
    return value.source.load(vm.roots) if isinstance(value, Lazy) else getattr(value, "obj", MISSING)


# -- as keys ----------------------------------------------------------------------------------------------------------
class Weakly(NamedTuple):
    """The hash key of a weak reference, equal to those of other references to the same object."""

    referent: Ref


class Weaker(Keyed):
    """The hash key of a weak reference to what the frame made, if a class in Python says what that equals."""

    __slots__ = ()
    __hash__ = Keyed.__hash__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Weaker):
            return False
        return operators.truth(self.vm, operators.binary(self.vm, "==", self.value, other.value))


def goes_by_id(hash: Any) -> bool:
    """Return whether a hash is the `id` of what the frame made, which is nothing else's."""
    return isinstance(hash, Ref) and isinstance(hash.what, tuple) and hash.what[:1] == ("id",)


@HASH_KEY.register(weakref.ReferenceType)
def hash_key(vm: Machine, self: Object) -> Weakly | Weaker:
    """Return what stands for a reference as a key.

    Ends the graph for one that existed, if more than identity tells its referent: nobody knows which of them the user's
    code would be asked about.
    """
    entity = vm.entity(self)
    referent = entity.payload_as(WeakReference).referent if entity.fresh else call(vm, self)
    hkey = vm.hkey(referent) if by_identity(referent.pytype) else None
    if referent.__class__ is Known and hkey is not None:
        return Weakly(Ref(id(hkey)))
    if referent.__class__ is Object and hkey.__class__ is Ref:
        return Weakly(hkey)
    if hkey is None and referent.__class__ is Object and vm.entity(referent).fresh:
        says = vm.hkey(referent)
        if says.__class__ is Keyed and goes_by_id(says.hash):
            return Weaker(vm, referent, says.hash)
    raise Break("unsupported key", type="weakref")


def real_key(ref: Any) -> Weakly | None:
    """Return what stands for a reference that existed; None if more than identity tells its referent."""
    referent = weakref.ref.__call__(ref)
    return Weakly(Ref(id(referent))) if by_identity(type(referent)) else None


def by_identity(cls: type) -> bool:
    """Return whether objects of a class equal only themselves.

    None does not count: a dead reference is no key any more.
    """
    return cls.__hash__ in IDENTITY_HASHES and cls is not type(None)


HASH: Any = weakref.ReferenceType.__hash__


def is_reference(obj: Any) -> bool:
    """Return whether an object is a reference whose class does not change how it is hashed and compared."""
    return issubclass(type(obj), weakref.ReferenceType) and type(obj).__hash__ is HASH


@rebuilds(weakref.ReferenceType)
def rebuild(emit: Emitter, entity: Entity) -> None:
    """Materialize a reference.

    Ends the graph if the frame made its referent: emitted code would hold that for too long.
    """
    made = entity.payload_as(WeakReference)
    if made.to_new:
        raise Restart(-1)
    bare_new = weakref.ReferenceType.__new__  # past KeyedRef's own, which is Python's and may be this very frame
    push_call(emit, bare_new, entity.pytype, made.referent, made.callback)

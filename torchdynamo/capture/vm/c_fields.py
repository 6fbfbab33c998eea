"""Read the fields that C keeps in an object under a name, which its attribute of that name need not be.

A subclass may have a slot, a property or another attribute under the name of a field of the type that it extends
(`__slots__ = "func"` in a subclass of functools.partial). C goes on reading its own field, and so do the models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.lookup import class_lookup, guarded_lookup
from torchdynamo.capture.vm.wrap import class_attribute, lift, wrap
from torchdynamo.core.signals import Break
from torchdynamo.core.source import Source
from torchdynamo.core.value import ABSENT, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.heap import Entity
    from torchdynamo.capture.vm.machine import Machine


class Hidden(str):
    """Name a field in `Entity.attrs` whose name a subclass uses for another attribute."""

    __slots__ = ("descriptor",)

    descriptor: Any


def name_of(cls: type, owner: type, name: str) -> str:
    """Return under which name the entities of `cls` hold the field that the type in C `owner` has as `name`."""
    descriptor = owner.__dict__[name]
    if class_lookup(cls, name) is descriptor:
        return name
    hidden = Hidden(f"<{owner.__name__}.{name}>")
    hidden.descriptor = descriptor
    return hidden


def held(entity: Entity, owner: type, name: str) -> Value | None:
    """Return the field of an object that the frame made; None if it has none."""
    value = entity.attrs.get(name_of(entity.pytype, owner, name))
    return None if value is ABSENT else value


def hold(vm: Machine, entity: Entity, owner: type, **fields: Value) -> None:
    """Set fields of an object that the frame made."""
    vm.effects.write_all(entity, {name_of(entity.pytype, owner, name): value for name, value in fields.items()})


def read(vm: Machine, obj: Value, owner: type, name: str) -> Value:
    """Return the field; of an object that was there it is guarded where it is looked at."""
    descriptor = owner.__dict__[name]
    if obj.__class__ is Known:
        return read_known(vm, obj, descriptor, owner, name)
    if obj.__class__ is not Object:
        raise Break("unsupported attribute", name=name, type=obj.pytype.__name__)
    entity = vm.entity(obj)
    guarded_lookup(vm, entity.pytype, name)
    key = name_of(entity.pytype, owner, name)
    value = entity.attrs.get(key) or entity.loaded.get(key)
    if value is None and entity.real is not MISSING and entity.source is not None:
        real = descriptor.__get__(entity.real, type(entity.real))
        value = entity.loaded[key] = wrap(vm, real, source_of(vm, entity.source, entity.pytype, owner, name))
    if value is None or value is ABSENT:
        raise Break("unsupported attribute", name=name, type=entity.pytype.__name__)
    return value


def read_known(vm: Machine, obj: Known, descriptor: Any, owner: type, name: str) -> Value:
    real = descriptor.__get__(obj.obj, type(obj.obj))
    if obj.source is None:
        return lift(vm, real)
    return wrap(vm, real, source_of(vm, obj.source, type(obj.obj), owner, name))


def source_of(vm: Machine, base: Source, cls: type, owner: type, name: str) -> Source:
    """Return where the field of an object of `cls` lies."""
    if class_lookup(cls, name) is owner.__dict__[name]:
        return Source("attr", base, name)
    return Source("field", base, class_attribute(vm, owner, name))

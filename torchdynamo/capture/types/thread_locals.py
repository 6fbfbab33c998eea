"""threading.local: an object with other attributes in each thread. Those of the thread that runs the frame count."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.types.items import lookup
from torchdynamo.capture.vm import dict_aliases
from torchdynamo.capture.vm.descriptors import describe
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.lookup import guarded_lookup, is_descriptor
from torchdynamo.capture.vm.model import Emitter, models, rebuilds, replays
from torchdynamo.capture.vm.wrap import wrap
from torchdynamo.core.signals import Break, Raised
from torchdynamo.core.source import Source
from torchdynamo.core.value import ABSENT, NONE, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.heap import Entity
    from torchdynamo.capture.vm.machine import Machine

LOCAL = threading.local


def written(vm: Machine, self: Object, name: str) -> dict[str, Value]:
    """What the frame wrote, ABSENT where it deleted."""
    entity = vm.entity(self)
    if name.startswith("__"):
        raise Break("unsupported attribute", name=name, type=self.pytype.__name__)
    if entity.items is None:
        entity.items = {}
    found: dict[str, Value] = entity.items
    return found


def read(vm: Machine, self: Object, name: str) -> Value | None:
    own = written(vm, self, name)
    entity = vm.entity(self)
    if entity.note is not None:
        return lookup(vm, entity.note, Known(name))
    if name in own or entity.source is None:
        value = own.get(name)
        return None if value is ABSENT else value
    try:
        held = entity.real.__dict__
    except Exception:  # whatever the `__init__` of this thread raises, Python is to raise it
        raise Break("unsupported attribute", name=name, type=self.pytype.__name__) from None
    source = Source("attr", entity.source, "__dict__")
    dict_aliases.rest_on(vm, held, source)
    if name in held:
        return wrap(vm, held[name], Source("key", source, name))
    vm.guard(source, "NO_KEY", name)
    return None


def whole(vm: Machine, self: Object) -> Value:
    """`__dict__` is a dict like any other from then on, as long as attributes are not written beside it."""
    entity = vm.entity(self)
    if entity.note is None:
        if entity.touched or entity.source is None:
            raise Break("unsupported attribute", name="__dict__", type=self.pytype.__name__)
        entity.note = wrap(vm, entity.real.__dict__, Source("attr", entity.source, "__dict__"))
    seen: Value = entity.note
    return seen


@models(LOCAL, "__new__")
def new(vm: Machine, cls: Known) -> Value:
    if cls.obj is not LOCAL:
        raise Break("unsupported type", type=cls.obj.__name__)
    return vm.new(LOCAL, {})


@models(LOCAL, "__init__")
def init(vm: Machine, self: Object) -> Value:
    return NONE


def of_class(vm: Machine, self: Object, name: str) -> Any:
    """What the class says of the name; one that has it told what is read or written there is not followed."""
    cls = self.pytype
    found = guarded_lookup(vm, cls, name)
    if is_descriptor(vm, found, "__set__") or guarded_lookup(vm, cls, "__getattr__") is not MISSING:
        raise Break("unsupported attribute", name=name, type=cls.__name__)
    return found


def unknown(vm: Machine, self: Object, name: str) -> Raised:
    kind = "_thread._local" if self.pytype is LOCAL else self.pytype.__name__
    return vm.error(AttributeError, f"{kind!r} object has no attribute {name!r}")


@models(LOCAL, "__getattribute__")
def getattribute(vm: Machine, self: Object, name: str) -> Value:
    if name == "__dict__":  # whatever classes have under that name
        return whole(vm, self)
    found = of_class(vm, self, name)
    value = read(vm, self, name)
    if value is not None:
        return value
    if found is not MISSING:
        return describe(vm, self, self.pytype, name, found)
    raise unknown(vm, self, name)


@models(LOCAL, "__setattr__")
def setattribute(vm: Machine, self: Object, name: Known, value: Value) -> Value:
    of_class(vm, self, name.obj)
    entity = vm.entity(self)
    if entity.note is not None:
        raise Break("unsupported attribute write", name=name.obj, type=self.pytype.__name__)
    if entity.source is not None:
        read(vm, self, name.obj)  # and so there is one for this thread
        dict_aliases.write(vm.aliased_dicts[id(entity.real.__dict__)])
    own = written(vm, self, name.obj)
    vm.effects.items(entity)
    own[name.obj] = value
    return NONE


@models(LOCAL, "__delattr__")
def delattribute(vm: Machine, self: Object, name: Known) -> Value:
    if read(vm, self, name.obj) is None:
        raise unknown(vm, self, name.obj)
    return setattribute(vm, self, name, ABSENT)


@rebuilds(LOCAL)
def rebuild(emit: Emitter, entity: Entity) -> None:
    emit.function(LOCAL)
    emit.op("CALL", (0, ()))
    emit.keep(entity)  # before its contents, which may lead back to it
    emit.fields(entity.items or {})


@replays(LOCAL)
def replay(emit: Emitter, entity: Entity) -> None:
    for name, value in entity.items.items():
        if value is not ABSENT:
            emit.value(value)
            emit.local(entity)
            emit.op("STORE_ATTR", name)
        elif name in entity.real.__dict__:
            emit.local(entity)
            emit.op("DELETE_ATTR", name)

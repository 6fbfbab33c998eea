"""collections.defaultdict: the factory of what is missing."""

from __future__ import annotations

import collections

from torchdynamo.capture.types.dict_updates import init
from torchdynamo.capture.types.items import push_items
from torchdynamo.capture.types.keys import key_error
from torchdynamo.capture.types.mapping import check_keys, rebuild_dict, setdefault
from torchdynamo.capture.vm import c_fields
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.lookup import class_lookup
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, models, rebuilds
from torchdynamo.core.value import NONE, Known, Object, Value


@models(collections.defaultdict, "__missing__")
def missing(vm: Machine, self: Object, key: Value) -> Value:
    factory = c_fields.read(vm, self, collections.defaultdict, "default_factory")
    if factory.__class__ is Known and factory.obj is None:
        raise key_error(vm, key)
    made = vm.call(factory, [], {})
    if KEEPS_WHAT_IS_THERE:
        return setdefault(vm, self, key, made)
    vm.setitem(self, key, made)
    return made


def keeps_what_is_there() -> bool:
    """Return whether a key that the factory itself puts in stays, and no `__setitem__` is asked."""
    probe: dict[int, int] = collections.defaultdict(lambda: probe.setdefault(0, 1) + 1)
    return probe[0] == 1


KEEPS_WHAT_IS_THERE = keeps_what_is_there()


@models(collections.defaultdict, "__init__")
def defaultdict_init(vm: Machine, self: Object, factory: Value = NONE, /, *args: Value, **kwargs: Value) -> Value:
    if factory.__class__ is Known and factory.obj is not None and not callable(factory.obj):
        raise vm.error(TypeError, "first argument must be callable or None")
    if factory.__class__ is Object and class_lookup(factory.pytype, "__call__") is MISSING:
        raise vm.error(TypeError, "first argument must be callable or None")
    c_fields.hold(vm, vm.entity(self), collections.defaultdict, default_factory=factory)
    return init(vm, self, *args, **kwargs)


@models(collections.defaultdict, "copy", "__copy__")
def copy_default(vm: Machine, self: Object) -> Value:
    return vm.call(Known(self.pytype), [c_fields.read(vm, self, collections.defaultdict, "default_factory"), self], {})


@rebuilds(collections.defaultdict)
def rebuild(emit: Emitter, entity: Entity) -> None:
    if entity.pytype is not collections.defaultdict:
        rebuild_dict(emit, entity)
        return
    check_keys(entity)
    emit.function(collections.defaultdict)
    emit.value(entity.attrs["default_factory"])
    push_items(emit, entity)
    emit.op("CALL", (2, ()))

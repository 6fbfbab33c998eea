"""weakref.proxy of what the frame made: what it is asked, the object answers, while something is seen to hold that."""

from __future__ import annotations

import weakref

from torchdynamo.capture.types.weakrefs import is_held, takes_references
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, function, models, rebuilds
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.value import NONE, Known, Object, Value

PROXY = weakref.ProxyType


@function(weakref.proxy)
def proxy(vm: Machine, obj: Value, callback: Value = NONE) -> Value:
    if callback is not NONE or obj.__class__ is not Object or not vm.entity(obj).fresh or not takes_references(obj):
        raise Break("unknown call", name="weakref.proxy")
    return vm.new(PROXY, payload=obj)


def referent(vm: Machine, self: Object) -> Object:
    found = vm.entity(self).payload_if(Object)
    if found is None or not is_held(vm, found):
        raise Break("unsupported type", type="weakproxy")
    return found


@models(PROXY, "__getattribute__")
def getattribute(vm: Machine, self: Object, name: str) -> Value:
    return vm.getattr(referent(vm, self), name)


@models(PROXY, "__setattr__")
def setattribute(vm: Machine, self: Object, name: Known, value: Value) -> Value:
    vm.setattr(referent(vm, self), name.obj, value)
    return NONE


@rebuilds(PROXY)
def rebuild(emit: Emitter, entity: Entity) -> None:
    raise Restart(-1)

"""threading.local: an object with other attributes in each thread. Those of the thread that runs the frame count.

They are read and written as any object's: `namespaces.HOLDERS` says where the dictionary of the thread is.
"""

from __future__ import annotations

import threading

from torchdynamo.capture.vm.attribute_writes import generic_setattr
from torchdynamo.capture.vm.attributes import plain_getattr
from torchdynamo.capture.vm.emitted_calls import push_call
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, models, rebuilds
from torchdynamo.core.signals import Break
from torchdynamo.core.value import ABSENT, NONE, Known, Object, Value

LOCAL = threading.local


@models(LOCAL, "__new__")
def new(vm: Machine, cls: Known) -> Value:
    if cls.obj is not LOCAL:
        raise Break("unsupported type", type=cls.obj.__name__)
    return vm.new(LOCAL)


@models(LOCAL, "__init__")
def init(vm: Machine, self: Object) -> Value:
    return NONE


@models(LOCAL, "__getattribute__")
def getattribute(vm: Machine, self: Object, name: str) -> Value:
    """Follow Python's own rules, but for `__dict__`, whatever classes have under that name."""
    return vm.instance_dict(self) if name == "__dict__" else plain_getattr(vm, self, name)


@models(LOCAL, "__setattr__")
def setattribute(vm: Machine, self: Object, name: Known, value: Value) -> Value:
    if name.obj.startswith("__"):
        raise Break("unsupported attribute write", name=name.obj, type=self.pytype.__name__)
    generic_setattr(vm, self, name.obj, value)
    return NONE


@models(LOCAL, "__delattr__")
def delattribute(vm: Machine, self: Object, name: Known) -> Value:
    return setattribute(vm, self, name, ABSENT)


@rebuilds(LOCAL)
def rebuild(emit: Emitter, entity: Entity) -> None:
    push_call(emit, LOCAL)
    emit.keep(entity)  # before its contents, which may lead back to it
    emit.fields(entity.attrs)

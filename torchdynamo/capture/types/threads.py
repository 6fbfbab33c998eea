"""threading: what an object holds for each thread, and locks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.heap import Entity
from torchdynamo.capture.model import Emitter, function, models, rebuilds
from torchdynamo.capture.signals import Break
from torchdynamo.capture.value import FALSE, NONE, TRUE, Known, Object, Value, boolean

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine


@models(threading.local, "__getattribute__")
def local_getattr(vm: Machine, self: Object, name: str) -> Value:
    raise Break("unsupported attribute", name=name, type=self.pytype.__name__)


@models(threading.local, "__setattr__")
def local_setattr(vm: Machine, self: Object, name: Known, value: Value) -> Value:
    raise Break("unsupported attribute write", name=name.obj, type=self.pytype.__name__)


LOCK, RLOCK = type(threading.Lock()), type(threading.RLock())


def new_lock(cls: type) -> Any:
    def row(vm: Machine) -> Value:
        return vm.new(cls, 0)  # how often it is held

    return row


for _make, _cls in ((threading.Lock, LOCK), (threading.RLock, RLOCK)):
    function(_make, _cls)(new_lock(_cls))


def own(vm: Machine, self: Object, name: str) -> Entity:
    """A lock that the frame made keeps nobody out: nobody else has it."""
    entity = vm.entity(self)
    if not entity.fresh:
        raise Break("unsupported method", name=name, type="lock")
    return entity


@models(LOCK, "acquire", "__enter__")
def acquire(vm: Machine, self: Object, blocking: Value = TRUE, timeout: Value = NONE) -> Value:
    entity = own(vm, self, "acquire")
    if entity.items:
        if blocking is TRUE or vm.truth(blocking):
            raise Break("unsupported method", name="acquire", type="lock")  # it waits for ever
        return FALSE
    entity.items = 1
    return TRUE


@models(RLOCK, "acquire", "__enter__")
def acquire_again(vm: Machine, self: Object, *args: Value, **kwargs: Value) -> Value:
    own(vm, self, "acquire").items += 1
    return TRUE


@models(LOCK, "release", "__exit__")
@models(RLOCK, "release", "__exit__")
def release(vm: Machine, self: Object, *args: Value) -> Value:
    entity = own(vm, self, "release")
    if not entity.items:
        cannot = "release unlocked lock" if self.pytype is LOCK else "cannot release un-acquired lock"
        raise vm.error(RuntimeError, cannot)
    entity.items -= 1
    return NONE


@models(LOCK, "locked")
def locked(vm: Machine, self: Object) -> Value:
    return boolean(own(vm, self, "locked").items > 0)


MAKERS: dict[type, Any] = {LOCK: threading.Lock, RLOCK: RLOCK}  # what C has, not Python round it


@rebuilds(LOCK, RLOCK)
def rebuild(emit: Emitter, entity: Entity) -> None:
    emit.function(made_lock)
    emit.const(MAKERS[entity.pytype])
    emit.const(entity.items)
    emit.op("CALL", (2, ()))


def made_lock(make: Any, held: int) -> Any:
    lock = make()
    for _ in range(held):
        lock.acquire()
    return lock

"""threading: what an object holds for each thread, and locks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.model import function, models
from torchdynamo.capture.signals import Break
from torchdynamo.capture.value import Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.machine import Machine


@models(threading.local, "__getattribute__")
def local_getattr(vm: Machine, self: Object, name: str) -> Value:
    raise Break("unsupported attribute", name=name, type=self.pytype.__name__)


@models(threading.local, "__setattr__")
def local_setattr(vm: Machine, self: Object, name: Known, value: Value) -> Value:
    raise Break("unsupported attribute write", name=name.obj, type=self.pytype.__name__)


LOCKS: tuple[type, ...] = (type(threading.Lock()), type(threading.RLock()))


def new_lock(cls: type) -> Any:
    def row(vm: Machine, *args: Value) -> Value:
        return vm.new(cls)

    return row


for _make, _cls in zip((threading.Lock, threading.RLock), LOCKS):
    function(_make)(new_lock(_cls))


def on_own_lock(name: str, answer: bool | None) -> None:
    """A lock that the frame made keeps nobody out: nobody else has it."""

    def row(vm: Machine, self: Object, *args: Value, **kwargs: Value) -> Value:
        if not vm.entity(self).fresh:
            raise Break("unsupported method", name=name, type="lock")
        return Known(answer)

    for cls in LOCKS:
        models(cls, name)(row)


for _name, _answer in (("__enter__", True), ("__exit__", None), ("acquire", True), ("release", None)):
    on_own_lock(_name, _answer)

"""property made by the frame itself: it says what it was made of, and is not asked for a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchdynamo.capture.model import Emitter, models, rebuilds
from torchdynamo.capture.signals import Restart
from torchdynamo.capture.value import NONE, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.heap import Entity
    from torchdynamo.capture.machine import Machine


@models(property, "__new__")
def new(vm: Machine, cls: Known, *functions: Value, **named: Value) -> Value:
    return vm.new(cls.obj)


@models(property, "__init__")
def init(vm: Machine, self: Object, *functions: Value, **named: Value) -> Value:
    given = dict(zip(("fget", "fset", "fdel", "doc"), functions)) | named
    vm.entity(self).attrs.update({name: given.get(name, NONE) for name in ("fget", "fset", "fdel")})
    return NONE


@rebuilds(property)
def rebuild(emit: Emitter, entity: Entity) -> None:
    """What it was made of is not kept."""
    raise Restart(entity.born - 1)

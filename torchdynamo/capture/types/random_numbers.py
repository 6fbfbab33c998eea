"""random.Random: once the frame has seeded it, what it draws is known; before that each draw is another.

All of its methods are Python on top of the few of C that are here, and are followed.
"""

from __future__ import annotations

import _random
import random
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.model import Emitter, models, rebuilds, replays
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.value import NONE, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

GENERATOR: Any = _random.Random


@models(GENERATOR, "__new__")
def new(vm: Machine, cls: Known, *args: Value, **kwargs: Value) -> Value:
    """Unseeded: `Random.__init__` seeds it."""
    return vm.new(cls.obj)


@models(GENERATOR, "__init__")
def init(vm: Machine, self: Object, *args: Value) -> Value:
    return NONE


@models(GENERATOR, "seed")
def seed(vm: Machine, self: Object, value: Value = NONE) -> Value:
    """A generator of our own does what this one will."""
    given = vm.known(value, "seed")
    if given is None:
        raise Break("builtin with effects", name="random.seed")  # by the time, or by the system
    entity = vm.entity(self)
    vm.effects.items(entity)
    entity.items = GENERATOR(given)
    return NONE


def drawing(vm: Machine, self: Object, name: str) -> Any:
    entity = vm.entity(self)
    if entity.items is None:
        raise Break("builtin with effects", name=f"random.{name}")
    return entity.items


@models(GENERATOR, "random")
def draw(vm: Machine, self: Object) -> Value:
    vm.effects.items(vm.entity(self))
    return Known(drawing(vm, self, "random").random())


@models(GENERATOR, "getrandbits")
def draw_bits(vm: Machine, self: Object, count: Value) -> Value:
    generator = drawing(vm, self, "getrandbits")
    vm.effects.items(vm.entity(self))
    return vm.run_pure(generator.getrandbits, [count], {})


@models(GENERATOR, "getstate")
def getstate(vm: Machine, self: Object) -> Value:
    return Known(drawing(vm, self, "getstate").getstate())


@models(GENERATOR, "setstate")
def setstate(vm: Machine, self: Object, state: Value) -> Value:
    made = GENERATOR()
    vm.run_pure(made.setstate, [state], {})
    entity = vm.entity(self)
    vm.effects.items(entity)
    entity.items = made
    return NONE


@replays(GENERATOR)
def replay(emit: Emitter, entity: Entity) -> None:
    """As it was left: where its next number comes from."""
    emit.function(GENERATOR.setstate)
    emit.local(entity)
    emit.const(entity.items.getstate())
    emit.op("CALL", (2, ()))
    emit.op("POP")


@rebuilds(random.Random)
def rebuild(emit: Emitter, entity: Entity) -> None:
    if entity.items is None:
        raise Restart(entity.born - 1)
    emit.function(made_again)
    emit.const(entity.pytype)
    emit.const(entity.items.getstate())
    emit.op("CALL", (2, ()))
    emit.fields(entity.attrs)


def made_again(cls: Any, state: Any) -> Any:
    """A generator of the class in this state."""
    made = cls.__new__(cls)
    GENERATOR.setstate(made, state)
    return made

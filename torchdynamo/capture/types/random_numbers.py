"""random.Random: once the frame has seeded it, what it draws is known; before that each draw is another.

All of its methods are Python on top of the few of C that are here, and are followed.
"""

from __future__ import annotations

import _random
import random
from typing import Any

from torchdynamo.capture.vm.emitted_calls import push_call, replay_call
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, models, rebuilds, replays
from torchdynamo.capture.vm.shadows import Shadow, shadows
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.value import NONE, Known, Object, Value

GENERATOR: Any = _random.Random


shadows(GENERATOR, Shadow(reads={"getstate"}))


@models(GENERATOR, "__new__")
def new(vm: Machine, cls: Known, *args: Value, **kwargs: Value) -> Value:
    """Make one that is not seeded: `Random.__init__` seeds it."""
    return vm.new(cls.obj)


@models(GENERATOR, "__init__")
def init(vm: Machine, self: Object, *args: Value) -> Value:
    return NONE


@models(GENERATOR, "seed")
def seed(vm: Machine, self: Object, value: Value = NONE) -> Value:
    """Seed a generator: one of our own draws for it, and gives what it would."""
    given = vm.known(value, "seed")
    if given is None:
        raise Break("builtin with effects", name="random.seed")  # by the time, or by the system
    entity = vm.entity(self)
    vm.effects.items(entity)
    entity.items = GENERATOR(given)
    return NONE


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
    """Put the generator into the state that says what it draws next."""
    replay_call(emit, GENERATOR.setstate, entity, entity.items.getstate())


@rebuilds(random.Random)
def rebuild(emit: Emitter, entity: Entity) -> None:
    if entity.items is None:
        raise Restart(entity.born - 1)
    push_call(emit, generator_in, entity.pytype, entity.items.getstate())
    emit.fields(entity.attrs)


def generator_in(cls: Any, state: Any) -> Any:
    """Return a generator of the class in this state."""
    made = cls.__new__(cls)
    GENERATOR.setstate(made, state)
    return made

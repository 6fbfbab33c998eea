"""random.Random: once the frame has seeded it, what it draws is known; before that each draw is another.

All of its methods are Python on top of the few of C that are here, and are followed. Of those that draw, `getrandbits`
may be called before: the bits are drawn when the graph has run, and the graph ends where something depends on them.
Checkers of types draw some at each call, and need them only to choose an item of a long list.
"""

from __future__ import annotations

import _random
import random
from typing import Any

from torchdynamo.capture.vm.emitted_calls import push_call, replay_call
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import IDENTICAL, Emitter, models, rebuilds, replays
from torchdynamo.capture.vm.shadows import Shadow, method, shadows
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.value import NONE, Known, Object, Value

GENERATOR: Any = _random.Random


SHADOW = Shadow(reads={"getstate"})
shadows(GENERATOR, SHADOW)
of_the_seed = method(SHADOW, "getrandbits")
MOST = 4096  # bits that are drawn after the graph: a call for more, or for fewer than none, may raise


class DrawnBits:
    """A deferred call that draws bits, and the payload of the number that they are."""

    def __init__(self, generator: Entity, bits: Value) -> None:
        self.generator, self.bits = generator, bits
        self.number: Entity | None = None

    def __call__(self, emit: Emitter) -> None:
        push_call(emit, GENERATOR.getrandbits, self.generator, self.bits)
        assert self.number is not None
        emit.keep(self.number)
        emit.op("POP")


@models(GENERATOR, "getrandbits")
def getrandbits(vm: Machine, self: Object, bits: Value) -> Value:
    """Return a number that is drawn after the graph, or what a generator draws that the frame has seeded."""
    entity = vm.entity(self)
    known = bits.obj if bits.__class__ is Known and type(bits.obj) is int else -1
    if entity.items is not None or entity.real is MISSING or not 0 <= known <= MOST:
        return of_the_seed(vm, self, bits)
    draw = DrawnBits(entity, bits)
    made = vm.new(int, payload=draw)
    draw.number = vm.entity(made)
    vm.effects.defer(f"draw {known} bits", draw)
    return made


@IDENTICAL.register(int)
def identical(vm: Machine, a: Value, b: Value) -> bool:
    """Return False: two integers of which one is not known. Ends the graph for one that is drawn after it."""
    if any(each.__class__ is Object and vm.entity(each).payload.__class__ is DrawnBits for each in (a, b)):
        raise Break("unknown call", name="is")
    return False


def refuse_draws(vm: Machine) -> None:
    """End the graph before a generator is seeded of which the frame has draws to make."""
    if any(each.emit.__class__ is DrawnBits for each in vm.effects.deferred):
        raise Break("builtin with effects", name="random.seed")


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
    refuse_draws(vm)
    entity = vm.entity(self)
    vm.effects.items(entity)
    entity.items = GENERATOR(given)
    return NONE


@models(GENERATOR, "setstate")
def setstate(vm: Machine, self: Object, state: Value) -> Value:
    refuse_draws(vm)
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

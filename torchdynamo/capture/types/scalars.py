"""Instances of the user's classes that extend int, float, complex, str and bytes, where the frame makes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchdynamo.capture.vm.emitted_calls import push_call
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, is_open, iterates, models, plain_new, rebuilds
from torchdynamo.capture.vm.scalar_subclasses import SCALARS, Plain, plain_value
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.value import Known, Object, Value


def maker(base: Any) -> None:
    """Register `base.__new__`: the value is what the plain type makes of the arguments."""

    def row(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
        if not is_open(cls.obj):
            return vm.run_pure(plain_new(cls.obj), [cls, *args], dict(kwargs))
        made = vm.call(Known(base), list(args), dict(kwargs))
        known = plain_value(vm, made) or made
        if known.__class__ is not Known or type(known.obj) is not base:
            raise Break("unsupported type", type=cls.obj.__name__)
        return vm.new(cls.obj, payload=Plain(Known(known.obj)))

    models(base, "__new__")(row)


for _base in SCALARS:
    maker(_base)


def field(name: str) -> Any:
    def row(vm: Machine, self: Value) -> Value:
        known = self if self.__class__ is Known else plain_value(vm, self)
        if known is None:
            raise Break("unsupported attribute", name=name, type=self.pytype.__name__)
        return lift(vm, getattr(known.obj, name))

    return row


for _base, _names in ((int, "real imag numerator denominator"), (float, "real imag"), (complex, "real imag")):
    for _name in _names.split():
        models(_base, "." + _name)(field(_name))


@iterates(str, bytes)
def iterate(vm: Machine, self: Object) -> Iterator[Value]:
    known = plain_value(vm, self)
    if known is None:
        raise Break("unknown iterator", type=self.pytype.__name__)
    return (Known(item) for item in known.obj)


@rebuilds(float, complex, str, bytes)
def rebuild(emit: Emitter, entity: Entity) -> None:
    """Materialize without the class's own `__new__`, which has run.

    Ends the graph for the text of an unknown number.
    """
    known = entity.payload_if(Plain)
    if known is None:
        raise Restart(entity.born - 1)
    push_call(emit, plain_new(entity.pytype), entity.pytype, known.value.obj)

"""What functools.cmp_to_key makes: keys that compare by a function."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.model import Emitter, function, models, rebuilds
from torchdynamo.core.signals import Break
from torchdynamo.core.value import Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

KEY: Any = type(functools.cmp_to_key(len))  # type: ignore[arg-type]


@function(functools.cmp_to_key)
def cmp_to_key(vm: Machine, mycmp: Value) -> Value:
    return vm.new(KEY, **{"<cmp>": mycmp})


def part(vm: Machine, self: Object, name: str) -> Value:
    found = vm.entity(self).attrs.get(name)
    if found is None:
        raise Break("unsupported type", type="functools.KeyWrapper")
    return found


@models(KEY, "__call__")
def call(vm: Machine, self: Object, obj: Value) -> Value:
    return vm.new(KEY, **{"<cmp>": part(vm, self, "<cmp>"), "<obj>": obj})


@models(KEY, ".obj")
def wrapped(vm: Machine, self: Object) -> Value:
    return part(vm, self, "<obj>")


def comparison(name: str, op: str) -> None:
    def row(vm: Machine, self: Object, other: Value) -> Value:
        if other.__class__ is not Object or other.pytype is not KEY:
            raise vm.error(TypeError, "other argument must be K instance")
        answer = vm.call(part(vm, self, "<cmp>"), [part(vm, self, "<obj>"), part(vm, other, "<obj>")], {})
        return vm.binary(op, answer, Known(0))

    models(KEY, name)(row)


for _name, _op in (("__lt__", "<"), ("__le__", "<="), ("__gt__", ">"), ("__ge__", ">="), ("__eq__", "==")):
    comparison(_name, _op)


@rebuilds(KEY)
def rebuild(emit: Emitter, entity: Entity) -> None:
    emit.function(made_key)
    for value in entity.attrs.values():
        emit.value(value)
    emit.op("CALL", (len(entity.attrs), ()))


def made_key(mycmp: Any, *obj: Any) -> Any:
    key = functools.cmp_to_key(mycmp)
    return key(*obj) if obj else key

"""Capture the keys of functools.cmp_to_key, which compare by a function."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from torchdynamo.capture.vm.emitted_calls import push_call
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import HOLDS, Emitter, function, models, rebuilds
from torchdynamo.core.signals import Break
from torchdynamo.core.value import Known, Object, Value

KEY: Any = type(functools.cmp_to_key(len))  # type: ignore[arg-type]


class ComparedBy(NamedTuple):
    """The payload of a key of `functools.cmp_to_key`, or of the function that makes keys."""

    compare: Value
    obj: Value | None = None  # None: it makes keys


@HOLDS.register(KEY)
def holds(entity: Entity) -> dict[str, Value]:
    made = entity.payload_as(ComparedBy)
    return {"cmp": made.compare} if made.obj is None else {"cmp": made.compare, "obj": made.obj}


@function(functools.cmp_to_key)
def cmp_to_key(vm: Machine, mycmp: Value) -> Value:
    return vm.new(KEY, payload=ComparedBy(mycmp))


def compare_of(vm: Machine, self: Object) -> Value:
    made = vm.entity(self).payload_if(ComparedBy)
    if made is None:
        raise unknown()
    return made.compare


def obj_of(vm: Machine, self: Object) -> Value:
    made = vm.entity(self).payload_if(ComparedBy)
    if made is None or made.obj is None:
        raise unknown()
    return made.obj


def unknown() -> Break:
    return Break("unsupported type", type="functools.KeyWrapper")


@models(KEY, "__call__")
def call(vm: Machine, self: Object, obj: Value) -> Value:
    return vm.new(KEY, payload=ComparedBy(compare_of(vm, self), obj))


@models(KEY, ".obj")
def wrapped(vm: Machine, self: Object) -> Value:
    return obj_of(vm, self)


def comparison(name: str, op: str) -> None:
    def row(vm: Machine, self: Object, other: Value) -> Value:
        if other.__class__ is not Object or other.pytype is not KEY:
            raise vm.error(TypeError, "other argument must be K instance")
        answer = vm.call(compare_of(vm, self), [obj_of(vm, self), obj_of(vm, other)], {})
        return vm.binary(op, answer, Known(0))

    models(KEY, name)(row)


for _name, _op in (("__lt__", "<"), ("__le__", "<="), ("__gt__", ">"), ("__ge__", ">="), ("__eq__", "==")):
    comparison(_name, _op)


@rebuilds(KEY)
def rebuild(emit: Emitter, entity: Entity) -> None:
    held = holds(entity)
    push_call(emit, made_key, *held.values())


def made_key(mycmp: Any, *obj: Any) -> Any:
    key = functools.cmp_to_key(mycmp)
    return key(*obj) if obj else key

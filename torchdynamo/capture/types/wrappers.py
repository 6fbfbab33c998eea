"""property, staticmethod, classmethod: what they are made with is what they show."""

from __future__ import annotations

import types

from torchdynamo.capture.vm import c_fields
from torchdynamo.capture.vm.emitted_calls import push_call
from torchdynamo.capture.vm.heap import Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, models, passes_on, rebuilds
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.value import NONE, Known, Object, Value, is_none

WRAPPERS: dict[type, dict[str, str]] = {  # of functions, in C: by argument, the attribute that shows it
    property: {"fget": "fget", "fset": "fset", "fdel": "fdel", "doc": "__doc__"},
    staticmethod: {"function": "__func__"},
    classmethod: {"function": "__func__"},
}


def given(cls: type, entity: Entity) -> list[Value]:
    """Return what a wrapper was made with, in the order of its arguments."""
    names = [c_fields.name_of(entity.pytype, cls, name) for name in WRAPPERS[cls].values()]
    return [entity.attrs[name] for name in names if name in entity.attrs]


def wrapper(cls: type) -> None:
    shown = WRAPPERS[cls]

    def new(vm: Machine, made: Known, /, *args: Value, **kwargs: Value) -> Value:
        return vm.new(made.obj)

    def init(vm: Machine, self: Object, /, *args: Value, **kwargs: Value) -> Value:
        named = dict(zip(shown, args)) | kwargs
        wrong = len(args) > len(shown) or not named.keys() <= shown.keys() or (cls is not property and not named)
        if wrong or not vm.entity(self).fresh:
            raise Break("unsupported method", name="__init__", type=cls.__name__)
        given = {shown[name]: named.get(name, NONE) for name in shown if name in named or name != "doc"}
        c_fields.hold(vm, vm.entity(self), cls, **given)
        return NONE

    def is_abstract(vm: Machine, self: Value) -> Value:  # asks for the truth of what may be anything
        raise Break("unsupported attribute", name="__isabstractmethod__", type=cls.__name__)

    def rebuild(emit: Emitter, entity: Entity) -> None:
        if entity.pytype is not cls:
            raise Restart(entity.born - 1)
        values = given(cls, entity)
        push_call(emit, cls, *values)

    models(cls, "__new__")(new)
    models(cls, "__init__")(init)
    models(cls, ".__isabstractmethod__")(is_abstract)
    rebuilds(cls)(rebuild)


for _wrapper in WRAPPERS:
    wrapper(_wrapper)


@models(classmethod, "__get__")
def bind_to_class(vm: Machine, self: Value, obj: Value, cls: Value = NONE) -> Value:
    owner, fn = lift(vm, obj.pytype) if is_none(cls) else cls, c_fields.read(vm, self, classmethod, "__func__")
    if fn.pytype is not types.FunctionType:  # which may have a `__get__` of its own, or cannot be called
        raise Break("unsupported method", name="__get__", type="classmethod")
    return vm.call(Known(types.MethodType), [fn, owner], {})


@models(staticmethod, "__get__")
def unwrap_static(vm: Machine, self: Value, obj: Value, cls: Value = NONE) -> Value:
    return c_fields.read(vm, self, staticmethod, "__func__")


@models(staticmethod, "__call__")
@passes_on
def call_static(vm: Machine, self: Value, /, *args: Value, **kwargs: Value) -> Value:
    direct, vm.direct = vm.direct, False
    fn = c_fields.read(vm, self, staticmethod, "__func__")
    vm.direct = direct
    return vm.call(fn, list(args), dict(kwargs))


def changer(method: str, field: str) -> None:
    """Register a method like `@p.setter`, which makes a property like this one with another function."""

    def row(vm: Machine, self: Value, fn: Value) -> Value:
        if self.__class__ is not Object or not vm.entity(self).fresh:
            raise Break("unsupported method", name=method, type="property")
        return vm.new(property, **{**vm.entity(self).attrs, field: fn})

    models(property, method)(row)


for _method, _field in (("getter", "fget"), ("setter", "fset"), ("deleter", "fdel")):
    changer(_method, _field)

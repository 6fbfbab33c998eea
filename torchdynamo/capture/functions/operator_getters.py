"""operator.attrgetter, itemgetter, methodcaller: small functions made of names."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.vm.model import enters, function, models
from torchdynamo.capture.vm.wrap import lift
from torchdynamo.core.source import Source
from torchdynamo.core.value import Known, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

GETTERS: tuple[type, ...] = (operator.attrgetter, operator.itemgetter, operator.methodcaller)


@enters(*GETTERS)
def enter(vm: Machine, obj: Any, source: Source) -> Value:
    """They never change."""
    vm.guard(source, "ID_MATCH", obj)
    return Known(obj, source)


def maker(cls: type) -> None:
    def row(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
        try:
            return Known(cls(*map(vm.concretely, args), **{name: vm.concretely(arg) for name, arg in kwargs.items()}))
        except TypeError as error:
            raise vm.error(TypeError, *error.args) from None

    function(cls)(row)


for _cls in GETTERS:
    maker(_cls)


def one_or_tuple(vm: Machine, found: list[Value]) -> Value:
    return found[0] if len(found) == 1 else vm.make_tuple(found)


@models(operator.attrgetter, "__call__")
def get_attributes(vm: Machine, self: Known, obj: Value) -> Value:
    found = []
    for path in self.obj.__reduce__()[1]:
        value = obj
        for name in path.split("."):
            value = vm.getattr(value, name)
        found.append(value)
    return one_or_tuple(vm, found)


@models(operator.itemgetter, "__call__")
def get_items(vm: Machine, self: Known, obj: Value) -> Value:
    return one_or_tuple(vm, [vm.getitem(obj, lift(vm, key)) for key in self.obj.__reduce__()[1]])


@models(operator.methodcaller, "__call__")
def call_method(vm: Machine, self: Known, obj: Value) -> Value:
    """Its parts come back as `partial(methodcaller, name, **kwargs)` where there are keywords."""
    maker, args = self.obj.__reduce__()
    named: dict[str, Any] = {}
    if maker is operator.methodcaller:
        name, *args = args
    else:
        (name,), named = maker.args, maker.keywords
    return vm.call(
        vm.getattr(obj, name),
        [lift(vm, arg) for arg in args],
        {key: lift(vm, value) for key, value in named.items()},
    )

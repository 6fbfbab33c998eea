"""operator: each function is its operator; attrgetter, itemgetter and methodcaller are small functions."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import operator
from typing import Any

from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import enters, function, models, polyfill
from torchdynamo.capture.vm.operators import BINARY, INPLACE, UNARY
from torchdynamo.capture.vm.wrap import enter_singleton, lift
from torchdynamo.core.value import NONE, Known, Value


def binary(symbol: str) -> Any:
    return lambda vm, a, b: vm.binary(symbol, a, b)


for _symbol, _row in (*BINARY.items(), *INPLACE.items()):
    function(_row[0])(binary(_symbol))


def unary(symbol: str) -> Any:
    return lambda vm, a: vm.unary(symbol, a)


for _symbol, _unary in UNARY.items():
    function(_unary[0])(unary(_symbol))


function(operator.not_)(unary("not"))


def compare(symbol: str) -> Any:
    return lambda vm, a, b: vm.compare(symbol, a, b)


function(operator.is_)(compare("is"))
function(operator.is_not)(compare("is not"))


@function(operator.contains)
def contains(vm: Machine, box: Value, item: Value) -> Value:
    return vm.compare("in", item, box)


@function(operator.getitem)
def getitem(vm: Machine, box: Value, key: Value) -> Value:
    return vm.getitem(box, key)


@function(operator.setitem)
def setitem(vm: Machine, box: Value, key: Value, value: Value) -> Value:
    vm.setitem(box, key, value)
    return NONE


@function(operator.delitem)
def delitem(vm: Machine, box: Value, key: Value) -> Value:
    vm.delitem(box, key)
    return NONE


def call(fn, /, *args, **kwargs):
    return fn(*args, **kwargs)


if hasattr(operator, "call"):
    polyfill(operator.call)(call)


# -- attrgetter, itemgetter, methodcaller -----------------------------------------------------------------------------
GETTERS: tuple[type, ...] = (operator.attrgetter, operator.itemgetter, operator.methodcaller)


enters(*GETTERS)(enter_singleton)  # they never change


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
    """Call the method that a methodcaller names. One with keywords takes itself apart into a partial."""
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

"""The operator module: each function is its operator."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from torchdynamo.capture.vm.model import function
from torchdynamo.capture.vm.operators import BINARY, INPLACE, UNARY
from torchdynamo.core.value import NONE, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


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

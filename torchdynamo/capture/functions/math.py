"""math: functions of numbers of the graph become its nodes; those of constants run at capture."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchdynamo.capture.functions.builtins_iteration import fold
from torchdynamo.capture.torch import symbols
from torchdynamo.capture.vm.lookup import guarded_slot
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function
from torchdynamo.core.value import ONE, Object, Symbol, Value

INTEGERS = frozenset({"floor", "ceil", "trunc", "isqrt", "gcd", "lcm", "comb", "perm", "factorial"})
FACTS = frozenset({"isnan", "isinf", "isfinite", "isclose"})
ROUNDING = ("floor", "ceil", "trunc")
SEVERAL = frozenset({"frexp", "modf", "prod", "fsum", "dist", "sumprod"})


# Of numbers that are computed with symbolically; of others they are the function of `math`.
SYMBOLIC = {
    name: getattr(torch, f"_sym_{name}")
    for name in "sqrt cos cosh sin sinh tan tanh asin acos atan log2".split()
    if hasattr(torch, f"_sym_{name}")
}


def calculation(fn: Any) -> None:
    name: str = fn.__name__
    pytype = int if name in INTEGERS else bool if name in FACTS else float

    def row(vm: Machine, *args: Value, **kwargs: Value) -> Value:
        if kwargs or not args:
            return vm.run_pure(fn, list(args), dict(kwargs))
        if name in ROUNDING and rounds_itself(vm, args[0], f"__{name}__"):
            return vm.special(args[0], f"__{name}__")
        if name in ROUNDING and args[0].__class__ is Symbol and not symbols.unknown(vm, args[0]):
            return (
                symbols.to_int(vm, args[0])
                if args[0].pytype is not float
                else vm.emit("call_function", fn, [*args], {})
            )
        if name in SYMBOLIC and len(args) == 1 and symbols.is_counted(vm, args[0]):
            return symbols.opaque(vm, SYMBOLIC[name], [args[0]], pytype)
        asks = symbols.unknown if pytype is int else symbols.is_counted  # of numbers that count, no versions
        if not any(asks(vm, arg) for arg in args) or not all(map(symbols.is_number, args)):
            return vm.run_pure(fn, list(args), {})
        if name in ROUNDING and args[0].pytype is not float:
            return symbols.to_int(vm, args[0])
        return symbols.opaque(vm, fn, list(args), pytype)

    function(fn)(row)


def rounds_itself(vm: Machine, value: Value, name: str) -> bool:
    """Return whether the class of an object says in Python how it is rounded."""
    return value.__class__ is Object and guarded_slot(vm, value.pytype, name)[0] == "python"


for _name, _fn in vars(math).items():
    if callable(_fn) and _name not in SEVERAL and not _name.startswith("_"):
        calculation(_fn)


@function(math.prod)
def product(vm: Machine, items: Value, *, start: Value = ONE) -> Value:
    return fold(vm, "*", vm.iterate(items), start)

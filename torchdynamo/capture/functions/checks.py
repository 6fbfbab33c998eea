"""`torch._check` and its kin: what they say of an unknown number is a fact from then on, and the graph checks it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from torchdynamo.capture.torch import symbols
from torchdynamo.capture.vm.model import function, models
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, Known, Symbol, TensorNode, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


def check(fn: Any) -> None:
    """One that takes a condition, and a function that words the error, which stays outside the graph."""

    def row(vm: Machine, cond: Value, message: Value = NONE) -> Value:
        if cond.__class__ is Symbol:
            return vm.emit("call_function", fn, [cond], {})
        return vm.inline(Known(fn), [cond, message], {})

    function(fn)(row)


for _check in (
    *(torch._check, torch._check_index, torch._check_value),
    *(torch._check_type, torch._check_not_implemented),
):
    check(_check)


BY_ERROR = {
    RuntimeError: torch._check,
    IndexError: torch._check_index,
    ValueError: torch._check_value,
    TypeError: torch._check_type,
    NotImplementedError: torch._check_not_implemented,
}


@function(torch._check_with)
def check_with(vm: Machine, error_type: Value, cond: Value, message: Value = NONE) -> Value:
    fn = BY_ERROR.get(error_type.obj) if error_type.__class__ is Known else None
    if fn is None or cond.__class__ is not Symbol:
        return vm.inline(Known(torch._check_with), [error_type, cond, message], {})
    return vm.call(Known(fn), [cond, message], {})


@function(torch._check_is_size)
def check_is_size(vm: Machine, size: Value, message: Value = NONE, *, max: Value = NONE) -> Value:
    """Deprecated, and torch warns where it is called."""
    if size.__class__ is not Symbol:
        return vm.inline(Known(torch._check_is_size), [size, message], {"max": max})
    for cond in (vm.binary(">=", size, Known(0)), *([] if max is NONE else [vm.binary("<=", size, max)])):
        vm.call(Known(torch._check), [cond], {})
    return NONE


@function(torch._assert)
def assertion(vm: Machine, condition: Value, message: Value) -> Value:
    """`assert condition, message` as a function."""
    if condition.__class__ is Symbol:
        vm.builder.numbers.learn(condition.fake)
        given = symbols.given(condition), vm.known(message, "message")
        vm.builder.note(torch._assert, given, {}, None, vm.position())
        vm.ops += 1
        return NONE
    return vm.inline(Known(torch._assert), [condition, message], {})


# -- comparing whole tensors ------------------------------------------------------------------------------------------
def comparison(fn: Any) -> None:
    def row(vm: Machine, *args: Value, **kwargs: Value) -> Value:
        """One truth value for all elements."""
        if not vm.builder.numbers.scalars:
            raise Break("data-dependent value", name=fn.__name__)
        if not all(arg.__class__ is TensorNode for arg in args[:2]):
            raise Break("unsupported argument", what=fn.__name__, type=args[0].pytype.__name__)
        return symbols.opaque(vm, fn, list(args), bool, kwargs)

    function(fn)(row)
    models(torch._C.TensorBase, fn.__name__)(row)


comparison(torch.equal)
comparison(torch.allclose)


# -- math -------------------------------------------------------------------------------------------------------------
INTEGERS = frozenset({"floor", "ceil", "trunc", "isqrt", "gcd", "lcm", "comb", "perm", "factorial"})
FACTS = frozenset({"isnan", "isinf", "isfinite", "isclose"})
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
        if name in ("floor", "ceil", "trunc") and args[0].__class__ is Symbol and not symbols.unknown(vm, args[0]):
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
        if name in ("floor", "ceil", "trunc") and args[0].pytype is not float:
            return symbols.to_int(vm, args[0])
        return symbols.opaque(vm, fn, list(args), pytype)

    function(fn)(row)


for _name, _fn in vars(math).items():
    if callable(_fn) and _name not in SEVERAL and not _name.startswith("_"):
        calculation(_fn)


ONE = Known(1)


@function(math.prod)
def product(vm: Machine, items: Value, *, start: Value = ONE) -> Value:
    total = start
    for item in vm.iterate(items):
        total = vm.binary("*", total, item)
    return total

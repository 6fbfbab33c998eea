"""Objects that instructions make: tuples, dicts, slices, sets, strings, bound methods."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import TYPE_CHECKING

from torchdynamo.capture.torch import symbols
from torchdynamo.capture.vm import call as calls
from torchdynamo.capture.vm import lookup, model
from torchdynamo.capture.vm import wrap as wrapping
from torchdynamo.core.value import NONE, Known, Object, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine

CONVERSIONS = {"s": str, "r": repr, "a": ascii}
"""Functions that `!s`, `!r` and `!a` of a field of an f-string call."""


def bound_method(vm: Machine, owner: Value, fn: Value, name: str) -> Value:
    """Return the value of `owner.fn`, a method bound to its object."""
    pytype = types.MethodType if fn.pytype is types.FunctionType else types.BuiltinMethodType
    return vm.new(pytype, payload=name, __self__=owner, __func__=fn)


def make_tuple(vm: Machine, items: list[Value]) -> Value:
    """Make a tuple. One of constants is a constant, but not where something is to be guarded when it is asked about.

    That is the place of what identity tells, and what a class that can be changed says of its instances.
    """
    known = [
        item.obj
        for item in items
        if item.__class__ is Known and not (wrapping.is_told_by_identity(item) or lookup.has_python_operators(item))
    ]
    if len(known) == len(items):
        made = tuple(known)
        vm.made_tuples[id(made)] = made
        return Known(made)
    return vm.new(tuple, items)


def make_dict(vm: Machine, items: Iterable[tuple[Value, Value]]) -> Object:
    """Make a dict, filled in this order."""
    made = vm.new(dict, {})
    for key, value in items:
        model.MODELS[dict, "__setitem__"](vm, made, key, value)
    return made


def make_slice(vm: Machine, *parts: Value) -> Value:
    """Return `slice(*parts)`."""
    if not 1 <= len(parts) <= 3:
        bound = "at least 1" if not parts else "at most 3"
        raise vm.error(TypeError, f"slice expected {bound} argument{'s' * bool(parts)}, got {len(parts)}")
    known = [part.obj for part in parts if part.__class__ is Known]
    if len(known) == len(parts):
        return Known(slice(*known))
    full = (NONE, *parts, NONE)[:3] if len(parts) == 1 else (*parts, NONE)[:3]
    return vm.new(slice, list(full))


def build(vm: Machine, kind: str, items: tuple[Value, ...]) -> Value:
    """Make what a BUILD instruction makes: `kind` is tuple, list, map, const_key_map, set or string."""
    if kind == "tuple":
        return vm.make_tuple(list(items))
    if kind == "list":
        return vm.new(list, list(items))
    if kind == "map":
        return vm.make_dict(zip(items[::2], items[1::2]))
    if kind == "const_key_map":
        keys = (wrapping.lift(vm, key) for key in vm.known(items[-1], "keys"))
        return vm.make_dict(zip(keys, items[:-1]))
    if kind == "set":
        return model.BUILD_SET[set](vm, items)
    if any(symbols.is_unknown(vm, item) for item in items):
        return symbols.text(vm)
    return Known("".join(vm.known(item, "string") for item in items))


def format_value(vm: Machine, value: Value, conversion: str, spec: Value | None) -> Value:
    """Format a field of an f-string."""
    convert = CONVERSIONS.get(conversion)
    if convert is not None:
        value = calls.call(vm, Known(convert), [value], {})
    return calls.call(vm, Known(format), [value] if spec is None else [value, spec], {})

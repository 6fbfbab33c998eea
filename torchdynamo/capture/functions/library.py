"""Functions of the standard library that are what their arguments make of them."""

from __future__ import annotations

import collections
import os
import pickle
import sys
import typing
from typing import TYPE_CHECKING, Any

from torchdynamo._native import type_name
from torchdynamo.capture.vm.model import function, models
from torchdynamo.capture.vm.remade_classes import MadeClass, called
from torchdynamo.capture.vm.scalar_subclasses import plain_value
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, Known, Value

if TYPE_CHECKING:
    from torchdynamo.capture.vm.machine import Machine


@function(sys.intern)
def intern(vm: Machine, text: Value) -> Value:
    if text.pytype is not str and issubclass(text.pytype, str):
        raise vm.error(TypeError, f"can't intern {type_name(text.pytype)}")
    return vm.run_pure(sys.intern, [text], {})


@function(pickle.dumps)
def dumps(vm: Machine, obj: Value, protocol: Value = NONE, **kwargs: Value) -> Value:
    """Of what has no parts that could be one object or two, which the bytes would tell."""
    real = vm.concretely(obj)
    if type(real) not in (dict, list, tuple, bool, int, float, type(None)) or (
        type(real) in (dict, list, tuple) and real
    ):
        raise Break("unknown call", name="pickle.dumps")
    return vm.run_pure(pickle.dumps, [obj, protocol], kwargs)


@function(collections.namedtuple)
def namedtuple(vm: Machine, /, *args: Value, **kwargs: Value) -> Value:
    """A class of constants; it belongs to the module whose code asks for it."""
    named = {"module": Known(vm.frames[-1].globals.real.get("__name__")), **kwargs}
    given = {name: vm.concretely(arg) for name, arg in named.items()}
    try:
        made: type = collections.namedtuple(*map(vm.concretely, args), **given)  # type: ignore[misc]
    except (ValueError, TypeError) as error:
        raise vm.error(type(error), *error.args) from None
    MadeClass(vm.step, called(collections.namedtuple, list(args), named)).known_to(vm, made)
    return Known(made)


@function(os.fspath)
def fspath(vm: Machine, path: Value) -> Value:
    """A string is its own path."""
    if issubclass(path.pytype, (str, bytes)):
        return path
    return vm.special(path, "__fspath__")


@models(typing.NewType, "__call__")
def new_type(vm: Machine, self: Value, value: Value) -> Value:
    """A type for checkers alone."""
    return value


def joiner(cls: Any) -> None:
    def row(vm: Machine, self: Value, items: Value) -> Value:
        return vm.run_pure(
            cls.join, [self, vm.new(list, [plain_value(vm, item) or item for item in vm.iterate(items)])], {}
        )

    models(cls, "join")(row)


joiner(str)
joiner(bytes)

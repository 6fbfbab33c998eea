"""Libraries of which one or two functions have models: enum, os, pickle, sys, tqdm."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import contextlib
import enum
import os
import pickle
import sys
from typing import Any

from torchdynamo._native import type_name
from torchdynamo.capture.vm.enums import guard_members
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.lookup import class_lookup, guarded_lookup
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import function, polyfill_named
from torchdynamo.core.signals import Break
from torchdynamo.core.value import NONE, Known, Object, Value


@function(enum.EnumMeta.__call__)
def enum_call(vm: Machine, cls: Known, /, *args: Value, **kwargs: Value) -> Value:
    """Look up a member of an enum by its value. Where there is none, `_missing_` of the class may return one."""
    if len(args) != 1 or kwargs:
        raise Break("unknown call", name=cls.obj.__name__)
    if class_lookup(cls.obj, "_missing_") is enum.Enum.__dict__["_missing_"]:
        guard_members(vm, cls.obj)
        return vm.run_pure(cls.obj, list(args), {})
    value = vm.concretely(args[0])
    own = type(class_lookup(cls.obj, "_missing_")) is classmethod and not issubclass(cls.obj, enum.Flag)
    if not own or not has_plain_hash(value) or type(vm.getattr(cls, "_missing_")) is not Object:
        raise Break("unknown call", name=cls.obj.__name__)
    guard_members(vm, cls.obj)
    if value in cls.obj._value2member_map_:
        return vm.run_pure(cls.obj, list(args), {})
    named: Value = vm.call_method(cls, "_missing_", args[0])
    if named.__class__ is not Known or not isinstance(named.obj, cls.obj):
        raise Break("unknown call", name=cls.obj.__name__)
    return named


def has_plain_hash(value: object) -> bool:
    """Return whether a value is of a builtin type whose hash and comparison run nothing of the user's."""
    return type(value) in (bool, int, float, str, bytes, type(None))


@function(sys.intern)
def intern(vm: Machine, text: Value) -> Value:
    if text.pytype is not str and issubclass(text.pytype, str):
        raise vm.error(TypeError, f"can't intern {type_name(text.pytype)}")
    return vm.run_pure(sys.intern, [text], {})


@function(pickle.dumps)
def dumps(vm: Machine, obj: Value, protocol: Value = NONE, **kwargs: Value) -> Value:
    """Pickle scalars, alone or in a container without one text twice: the bytes would tell if these are one object."""
    real = vm.concretely(obj)
    if not is_pickled_by_value(real):
        raise Break("unknown call", name="pickle.dumps")
    return vm.run_pure(pickle.dumps, [obj, protocol], kwargs)


def is_pickled_by_value(obj: Any) -> bool:
    """Return whether all that counts for the pickle of an object is what it equals."""
    inside = [*obj, *obj.values()] if type(obj) is dict else [*obj] if type(obj) in (list, tuple) else [obj]
    texts = [each for each in inside if type(each) in (str, bytes)]
    return len(set(texts)) == len(texts) and all(has_plain_hash(each) for each in inside)


@function(os.fspath)
def fspath(vm: Machine, path: Value) -> Value:
    """Return the path of an object; a str or bytes is its own. Raises the program's TypeError where it has none."""
    if issubclass(path.pytype, (str, bytes)):
        return path
    if guarded_lookup(vm, path.pytype, "__fspath__") is MISSING:
        raise vm.error(TypeError, f"expected str, bytes or os.PathLike object, not {type_name(path.pytype)}")
    told = vm.special(path, "__fspath__")
    if not issubclass(told.pytype, (str, bytes)):
        names = type_name(path.pytype), type_name(told.pytype)
        raise vm.error(TypeError, "expected {}.__fspath__() to return str or bytes, not {}".format(*names))
    return told


@polyfill_named("tqdm.std", "tqdm.__new__")
def new_bar(cls, *args, **kwargs):
    bar = object.__new__(cls)
    cls._instances.add(bar)
    if not hasattr(cls, "_lock"):  # the first bar makes it
        bar._lock = contextlib.nullcontext()
    return bar

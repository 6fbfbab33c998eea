"""Tell what of a guard's argument is an object that counts by its identity, and where the frame has it."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from torchdynamo.cache.store.values import NotStorable
from torchdynamo.capture.vm.wrap import holds_nan
from torchdynamo.core.source import Source
from torchdynamo.core.value import ABSENT
from torchdynamo.guards.constants import is_constant
from torchdynamo.guards.identity import Weak

Place = Source | None


class Identical:
    """An object whose identity matters, and where the frame has it."""

    __slots__ = ("obj", "place")

    def __init__(self, obj: Any, place: Place) -> None:
        self.obj = obj
        self.place = place


def identical(obj: Any, place: Place = None) -> Any:
    """Return an object that is compared by identity: itself, if a value of its kind is one object in each process."""
    obj = unwrapped(obj)
    return obj if type(obj) in _SINGLE or obj is ABSENT else Identical(obj, place)


_SINGLE = frozenset({type(None), bool, type(...), type(NotImplemented), torch.dtype, torch.layout, torch.memory_format})


def item(obj: Any, place: Place = None) -> Any:
    """Return a key of a dict, or an item of a set: a value, or an object that is compared by identity."""
    obj = unwrapped(obj)
    return obj if is_constant(obj) and not holds_nan(obj) else Identical(obj, place)


# kind of guard -> (source, argument): the argument with its objects, and where they are
ARGUMENTS: dict[str, Callable[[Source, Any], Any]] = {
    "ID_MATCH": lambda source, arg: identical(arg, source),
    "TYPE_MATCH": lambda source, arg: identical(arg, Source("type", source)),
    "FUNCTION_MATCH": lambda source, arg: identical(
        arg, Source("attr", source, "__code__") if type(arg) is types.CodeType else source
    ),
    "CLASS_ATTR": lambda source, arg: (arg[0], identical(arg[1], Source("class_attr", source, arg[0]))),
    "TENSOR_MATCH": lambda source, arg: (identical(arg.cls, Source("type", source)), *arg[1:]),
    "DICT_KEYS": lambda source, arg: tuple(item(each, Source("key_at", source, at)) for at, each in enumerate(arg)),
    "SET_CONTENTS": lambda source, arg: tuple(map(item, arg)),
    "HAS_KEY": lambda source, arg: item(arg),
    "NO_KEY": lambda source, arg: item(arg),
}


def unwrapped(obj: Any) -> Any:
    """Return the object that a guard refers to weakly. Raises NotStorable if it has been freed."""
    if type(obj) is not Weak:
        return obj
    found = obj.ref()
    if found is None:
        raise NotStorable(f"{obj} has been freed")
    return found

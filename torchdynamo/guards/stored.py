"""Store guards on disk: structure, names, hashes of code and values, but no objects.

`dumps` replaces every object that is not plain data by a fact (`facts.py`), so that unpickling imports nothing of the
user's. `resolve` compares facts with a real frame and inserts that frame's objects: the result are guards as a capture
would have made them. Where there is no such object it raises `Unresolved`, which counts as a failed guard.
"""

from __future__ import annotations

import io
import operator
import pickle
import platform
import sys
from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from torchdynamo.core.source import Guard, Pinned, Roots, Source
from torchdynamo.guards.constants import is_constant, same_constant
from torchdynamo.guards.facts import FACTS, Unresolved, fact_of, object_of
from torchdynamo.guards.identity import Weak
from torchdynamo.guards.kind import read
from torchdynamo.guards.kinds.class_attr import find
from torchdynamo.guards.kinds.tensor_match import TensorMeta
from torchdynamo.guards.program import complete

STAMP = (1, platform.python_version(), f"{torch.__version__}")  # packed state and dispatch keys depend on the version
OURS = ("copyreg", "torchdynamo")  # modules whose names may stand in the pickle
CONTAINERS = (dict, list, set)
PLAIN_TYPES = (torch.dtype, torch.device, torch.Size, slice, range, complex)


class Facts(pickle.Pickler):
    """A pickler that writes facts in the place of objects."""

    def reducer_override(self, obj: Any) -> Any:
        """Write plain data as usual, and other objects as facts."""
        if type(obj) is Weak:
            return whole(fact_of(obj.ref()))
        if type(obj) is Pinned:
            return Pinned, (fact_of(obj.object),)
        if is_plain(obj):
            return NotImplemented
        return whole(fact_of(obj))


def whole(fact: Any) -> tuple[Any, ...]:
    """Return a pickle reduction that restores a fact."""
    return type(fact), tuple(fact)


def is_plain(obj: Any) -> bool:
    """Return whether an object is pickled as data: it and its parts need only our own classes and functions."""
    if isinstance(obj, (type, FunctionType, BuiltinFunctionType)):
        module = str(obj.__module__)
        ours = module.partition(".")[0] in OURS and getattr(sys.modules[module], obj.__name__, None) is obj
        return ours or obj in PLAIN_TYPES
    if type(obj) in (torch.layout, torch.memory_format):
        return False
    return isinstance(obj, (Guard, Source, TensorMeta, tuple, *FACTS)) or is_constant(obj)


def dumps(guards: Iterable[Guard]) -> bytes:
    """Return guards as bytes."""
    file = io.BytesIO()
    Facts(file).dump((STAMP, [guard._replace(arg=without_containers(guard.arg)) for guard in guards]))
    return file.getvalue()


def without_containers(arg: Any) -> Any:
    """Return a guard's argument with facts for dicts, lists and sets, which are known by identity."""
    if type(arg) in CONTAINERS:
        return fact_of(arg)
    return tuple(map(without_containers, arg)) if type(arg) is tuple else arg


def loads(data: bytes) -> list[Guard]:
    """Return guards from bytes, with facts in the place of objects: `resolve` them before use. Raises ValueError for
    guards that another version of Python or torch wrote.
    """
    stamp, guards = pickle.loads(data)
    if stamp != STAMP:
        raise ValueError(f"these guards were written by {stamp}, and this is {STAMP}")
    return list(guards)


def resolve(guards: Iterable[Guard], roots: Roots) -> list[Guard]:
    """Return guards with facts replaced by objects of this frame. Raises Unresolved."""
    data = list(guards)
    return complete(ResolveScope(data, roots).resolved(data), roots)


class ResolveScope:
    """Finds the objects that facts describe, in a frame and in the classes of all that the guards lead to."""

    def __init__(self, guards: list[Guard], roots: Roots) -> None:
        self.roots = roots
        self.found: dict[Any, Any] = {}  # fact -> object: equal facts stand for one object
        values = [read(guard.source, roots) for guard in guards if guard.source.root().how != "pinned"]
        met = [*map(type, values), *(value for value in values if isinstance(value, type))]
        self.classes = list({cls: None for each in met for cls in each.__mro__})

    def resolved(self, guards: list[Guard]) -> list[Guard]:
        return [self.resolve(guard) for guard in guards]

    def resolve(self, guard: Guard) -> Guard:
        source = self.live(guard.source, self.classes)
        at_hand = [*candidates(guard, source, self.roots), *self.classes]
        return guard._replace(source=source, arg=self.live(guard.arg, at_hand))

    def live(self, data: Any, at_hand: list[Any]) -> Any:
        """Return data with its facts replaced by objects. Raises Unresolved."""
        if isinstance(data, FACTS):
            found = object_of(data, at_hand)
            if self.found.setdefault(data, found) is not found:
                raise Unresolved(data)
            return found
        if type(data) is Source:
            return Source(data.how, self.live(data.base, at_hand), self.live(data.arg, at_hand))
        if type(data) is Pinned:
            return Pinned(self.live(data.object, at_hand))
        if type(data) is TensorMeta:
            return TensorMeta._make(self.live(part, at_hand) for part in data)
        if type(data) in (tuple, frozenset):
            return identical_to(type(data)(self.live(part, at_hand) for part in data), at_hand)
        return identical_to(data, at_hand)


def identical_to(made: Any, at_hand: list[Any]) -> Any:
    """Return the object at hand that equals a value, if there is one, because some guards compare identity."""
    return next((found for found in at_hand if type(found) is type(made) and same(found, made)), made)


def same(found: Any, made: Any) -> bool:
    if is_constant(made):
        return same_constant(found, made)
    return type(made) is tuple and len(found) == len(made) and all(map(operator.is_, found, made))


def candidates(guard: Guard, source: Source, roots: Roots) -> Iterator[Any]:
    """Yield the objects that a guard's argument may stand for, judged by what is at its source now."""
    value = read(source, roots)
    yield from (value, type(value))
    if hasattr(value, "__code__"):
        yield value.__code__
    if guard.kind == "CLASS_ATTR" and isinstance(value, type):
        yield find(value, guard.arg[0])
    if isinstance(value, dict):
        yield from dict.keys(value)
    elif isinstance(value, (set, frozenset)):
        yield from value


__all__ = ["Unresolved", "dumps", "loads", "resolve"]

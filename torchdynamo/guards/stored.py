"""Guards on disk: structure, names, hashes of code and values, and none of the objects.

`dumps` puts a fact (`facts.py`) in the place of every object that is not plain data, so a pickle of guards imports
nothing of the user's when it is read. `resolve` holds facts against a frame that is there, and puts that frame's
objects in their place: what comes back are guards as a capture would have made them, or `Unresolved`, where there is
no such object, which is as much as a guard that fails.
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

STAMP = (1, platform.python_version(), f"{torch.__version__}")  # packed state and dispatch keys are of one torch
OURS = ("copyreg", "torchdynamo")  # modules whose names may stand in the pickle
CONTAINERS = (dict, list, set)
PLAIN_TYPES = (torch.dtype, torch.device, torch.Size, slice, range, complex)


class Facts(pickle.Pickler):
    """Pickles facts instead of objects."""

    def reducer_override(self, obj: Any) -> Any:
        """Return what is plain is pickled as ever."""
        if type(obj) is Weak:
            return whole(fact_of(obj.ref()))
        if type(obj) is Pinned:
            return Pinned, (fact_of(obj.object),)
        if is_plain(obj):
            return NotImplemented
        return whole(fact_of(obj))


def whole(fact: Any) -> tuple[Any, ...]:
    """Return how a fact is made again."""
    return type(fact), tuple(fact)


def is_plain(obj: Any) -> bool:
    """Return whether pickle writes an object out as data, with the classes and functions that make it again."""
    if isinstance(obj, (type, FunctionType, BuiltinFunctionType)):
        module = str(obj.__module__)
        ours = module.partition(".")[0] in OURS and getattr(sys.modules[module], obj.__name__, None) is obj
        return ours or obj in PLAIN_TYPES
    if type(obj) in (torch.layout, torch.memory_format):
        return False
    return isinstance(obj, (Guard, Source, TensorMeta, tuple, *FACTS)) or is_constant(obj)


def dumps(guards: Iterable[Guard]) -> bytes:
    """Return the guards as bytes."""
    file = io.BytesIO()
    Facts(file).dump((STAMP, [guard._replace(arg=without_containers(guard.arg)) for guard in guards]))
    return file.getvalue()


def without_containers(arg: Any) -> Any:
    """Return a guard's data with facts for lists, dicts and sets, known by which they are: pickle would write their
    items.
    """
    if type(arg) in CONTAINERS:
        return fact_of(arg)
    return tuple(map(without_containers, arg)) if type(arg) is tuple else arg


def loads(data: bytes) -> list[Guard]:
    """Return the guards, with facts in the place of objects: `resolve` them before asking them anything."""
    stamp, guards = pickle.loads(data)
    if stamp != STAMP:
        raise ValueError(f"these guards were written by {stamp}, and this is {STAMP}")
    return list(guards)


def resolve(guards: Iterable[Guard], roots: Roots) -> list[Guard]:
    """Return the guards with this frame's objects for the facts."""
    told = list(guards)
    return complete(ResolveScope(told, roots).resolved(told), roots)


class ResolveScope:
    """Where objects are looked for: a frame, and the classes of all that the guards lead to in it."""

    def __init__(self, guards: list[Guard], roots: Roots) -> None:
        self.roots = roots
        self.found: dict[Any, Any] = {}  # by fact: what is told twice is one object
        values = [read(guard.source, roots) for guard in guards if guard.source.root().how != "pinned"]
        met = [*map(type, values), *(value for value in values if isinstance(value, type))]
        self.classes = list({cls: None for each in met for cls in each.__mro__})

    def resolved(self, guards: list[Guard]) -> list[Guard]:
        return [self.resolve(guard) for guard in guards]

    def resolve(self, guard: Guard) -> Guard:
        source = self.live(guard.source, self.classes)
        at_hand = [*candidates(guard, source, self.roots), *self.classes]
        return guard._replace(source=source, arg=self.live(guard.arg, at_hand))

    def live(self, told: Any, at_hand: list[Any]) -> Any:
        """Return what was told, with objects in it."""
        if isinstance(told, FACTS):
            found = object_of(told, at_hand)
            if self.found.setdefault(told, found) is not found:
                raise Unresolved(told)
            return found
        if type(told) is Source:
            return Source(told.how, self.live(told.base, at_hand), self.live(told.arg, at_hand))
        if type(told) is Pinned:
            return Pinned(self.live(told.object, at_hand))
        if type(told) is TensorMeta:
            return TensorMeta._make(self.live(part, at_hand) for part in told)
        if type(told) in (tuple, frozenset):
            return the_one(type(told)(self.live(part, at_hand) for part in told), at_hand)
        return the_one(told, at_hand)


def the_one(made: Any, at_hand: list[Any]) -> Any:
    """Return the object at hand that is worth the same, if there is one: some guards ask which it is."""
    return next((found for found in at_hand if type(found) is type(made) and same(found, made)), made)


def same(found: Any, made: Any) -> bool:
    if is_constant(made):
        return same_constant(found, made)
    return type(made) is tuple and len(found) == len(made) and all(map(operator.is_, found, made))


def candidates(guard: Guard, source: Source, roots: Roots) -> Iterator[Any]:
    """Walk through the objects that a guard's data may speak of, by what is at its source now."""
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

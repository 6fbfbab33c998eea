"""Calls of functions with `functools.lru_cache` that a capture has made: with what, and what they gave.

The real function is called while its caller is captured. Another process that uses what was captured has to call it as
well: its effects are the program's, its result is kept for other callers, and it may be another there.
"""

from __future__ import annotations

import functools
import inspect
import math
import types
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torchdynamo import _native
from torchdynamo.capture.vm.heap import MISSING
from torchdynamo.capture.vm.wrap import CONSTANTS
from torchdynamo.core.call_sites import Call
from torchdynamo.core.source import Guard, Position, Source
from torchdynamo.hook.compile_lock import lent

CACHED: Any = functools._lru_cache_wrapper


class CachedCall(NamedTuple):
    """A call of a function that keeps its results. Arguments are constants, sources, and tuples of these."""

    function: Source
    args: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]
    result: Any
    at_entry: bool  # all that the function could see was then as it is when the frame begins
    position: tuple[Any, ...] | None
    module: str  # that has the position

    @property
    def place(self) -> Position | None:
        """The position in the program, as guards have it."""
        return None if self.position is None else Position(*self.position)


def same(one: Any, other: Any) -> bool:
    """Return whether two arguments are the same: sources by identity, constants by value, with 0.0 and -0.0 apart."""
    if type(one) is tuple and type(other) is tuple and len(one) == len(other):
        return all(map(same, one, other))
    return one is other or (type(one) is type(other) and type(one) in CONSTANTS and repr(one) == repr(other))


def most_results(function: Any) -> float:
    """Return how many results a function keeps at most: infinity without a limit, 0 for one without a cache."""
    most = CACHED.cache_info(function)[2] if type(function) is CACHED else 0
    return math.inf if most is None else most


def key_of(function: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Return the key under which a function keeps the result for these arguments, as `functools` makes it.

    MISSING if it cannot be told. Raises what the arguments raise when they are asked for their hash.
    """
    parameters = getattr(function, "cache_parameters", None)
    if parameters is None:  # made by hand, not by `lru_cache`
        return MISSING
    other = functools.lru_cache(None, parameters()["typed"])(nothing)
    other(*args, **named)
    return next(iter(_native.cache_of(other) or ()), MISSING)


def nothing(*args: Any, **named: Any) -> None:
    """Do nothing."""


def holds(function: Any, key: Any) -> bool:
    """Return whether a function is known to keep a result under a key."""
    cache = _native.cache_of(function)
    return cache is not None and key is not MISSING and key in cache


def guard_of_result(
    function: Any, source: Source, key: Any, position: Position | None, made: Iterable[Any] = ()
) -> Guard | None:
    """Return the guard that a cache still holds a result: eager would call the function again after it was cleared.

    made: the objects in the key that the capture has made. None where no guard can tell.
    """
    cache = _native.cache_of(function)
    if cache is None or not holds(function, key):
        return None
    held, kept = cache[key], held_weakly(key, frozenset(map(id, made)))
    if kept is MISSING:
        return None
    limited = most_results(function) < math.inf
    if limited and may_drop(function):
        return None
    kind = "EQUALS_MATCH" if type(held) in CONSTANTS else "ID_MATCH"  # where there is a limit, a link to the result
    if limited or holds_objects(kept):
        found = look_up(KeyOfObjects(kept))
        if found(function) is not held:
            return None
        path = Source("asked", source, found)
        note_path(path, vars(found)["key"].parts)
        return Guard(path, kind, held, position)
    return Guard(Source("key", Source("cache", source), kept), kind, held, position)


def may_drop(function: Any, more: int = 0) -> bool:
    """Return whether the next result of a function, after more, may take the place of another, in the same link."""
    if len(_native.cache_of(function) or ()) + more < most_results(function):
        return False
    code = getattr(function.__wrapped__, "__code__", None)
    return type(code) is not types.CodeType or bool(
        code.co_argcount or code.co_kwonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    )


class OwnKey:
    """Stands in a key for an object that captures have made, like one that the program makes in each call."""

    __slots__ = ("number", "obj")

    def __init__(self, obj: Any) -> None:
        self.obj, self.number = obj, hash(obj)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is OwnKey and bool(self.obj == other.obj))


class WeakKey(weakref.ref[Any]):
    """Stands in a key for an object that it does not hold. Paths by such a key are dropped with the object."""

    __slots__ = ("number", "paths")

    def __new__(cls, obj: Any) -> WeakKey:
        return super().__new__(cls, obj, cls.died)

    def __init__(self, obj: Any) -> None:
        super().__init__(obj, WeakKey.died)  # type: ignore[call-arg]
        self.number = hash(obj)
        self.paths: set[Source] = set()

    def died(self) -> None:
        for path in self.paths:
            path.forget()
        self.paths.clear()

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is WeakKey and self() is other() is not None)


class KeyOfObjects:
    """Finds a key in a cache, whose objects it does not hold. One there may have changed: what it equals is asked."""

    __slots__ = ("number", "parts")

    def __init__(self, parts: Any) -> None:
        self.parts, self.number = parts, hash(parts)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self.parts == other.parts if type(other) is KeyOfObjects else is_at(self.parts, other)


def note_path(path: Source, parts: Any) -> None:
    """Have a path dropped as soon as an object is freed that parts of a key stand for."""
    for part in parts if type(parts) is tuple else [parts]:
        if type(part) is tuple:
            note_path(path, part)
        elif type(part) is WeakKey:
            part.paths.add(path)


def is_at(part: Any, found: Any) -> bool:
    """Return whether what `held_weakly` has made of a part of a key stands for this one."""
    if type(part) is WeakKey:
        obj = part()
        return obj is not None and (found is obj or bool(found == obj))
    if type(part) is OwnKey:
        return bool(found == part.obj)
    if type(part) is not type(found):
        return type(part) in CONSTANTS and type(found) in CONSTANTS and bool(part == found)
    if type(part) is tuple:
        return len(part) == len(found) and all(map(is_at, part, found))
    return part is found or bool(part == found)


def look_up(key: KeyOfObjects) -> Callable[[Any], Any]:
    """Return what looks for a result where native guards do not: under a key with objects, or where there is a limit.

    It is one for equal keys, so that guards are found to be equal, and goes with the paths that have it.
    """
    found = _look_ups.get(key)
    if found is None:
        found = _look_ups[key] = result_under(key)
    return found


_look_ups: weakref.WeakValueDictionary[KeyOfObjects, Callable[[Any], Any]] = weakref.WeakValueDictionary()


def result_under(key: KeyOfObjects) -> Callable[[Any], Any]:
    """Return a function that gives what a cached function keeps under a key.

    MISSING if it keeps nothing there, or if it is full, so that what was found may have got another result.
    """

    def result(function: Any) -> Any:
        cache = _native.cache_of(function)
        held = MISSING if cache is None else cache.get(key, MISSING)
        return MISSING if type(held) is LINK and may_drop(function) else held

    vars(result)["key"] = key
    return result


LOOKS_UP = result_under(KeyOfObjects(())).__code__


def holds_objects(key: Any) -> bool:
    """Return whether there are objects in a key that native guards do not compare."""
    return any(map(holds_objects, key)) if type(key) is tuple else key is KEYWORDS or type(key) not in CONSTANTS


def held_weakly(key: Any, made: frozenset[int]) -> Any:
    """Return an equal of a key that keeps no object of the program alive; MISSING if there is none.

    made: the ids of objects in it that are not the program's.
    """
    if id(key) in made:
        return OwnKey(key)
    if type(key) is tuple:
        parts = tuple(held_weakly(part, made) for part in key)
        return MISSING if any(part is MISSING for part in parts) else parts
    if type(key) in CONSTANTS or key is KEYWORDS or is_constant(key):
        return key
    try:
        return WeakKey(key)
    except TypeError:
        return MISSING


def is_constant(key: Any) -> bool:
    """Return whether a part of a key is a named tuple or a frozenset of constants."""
    cls: Any = type(key)
    base: Any = frozenset if cls is frozenset else tuple
    if not isinstance(key, base) or cls.__hash__ is not base.__hash__ or cls.__eq__ is not base.__eq__:
        return False
    return all(type(item) in CONSTANTS for item in base.__iter__(key))


def linked() -> Any:
    """Return what a cache with a limit holds."""
    other = functools.lru_cache(1)(nothing)
    other()
    return next(iter((_native.cache_of(other) or {}).values()))


# The type of what a cache with a limit holds in place of a result: the result, in the order of its last use.
LINK = type(linked())

# What stands between the arguments by position and those by name, in a key.
KEYWORDS = key_of(functools.lru_cache(nothing), (), {"name": None})[0]


def ask(function: Any, args: Sequence[Any], named: Mapping[str, Any], call: Call) -> Any:
    """Call a function with a cache while a frame is compiled. Other threads that it waits for need not wait for us.

    call: makes the call, from where the program has it. Raises what the function raises.
    """
    with lent():
        return call(function, args, named)


def is_of_result(guard: Guard) -> bool:
    """Return whether a guard says that a cache still holds a result."""
    return cache_asked(guard) is not None


def cache_asked(guard: Guard) -> Source | None:
    """Return the source of the function whose result a guard looks for; None for other guards."""
    how, base, arg = guard.source.how, guard.source.base, guard.source.arg
    if how == "asked" and arg.__code__ is LOOKS_UP:
        return base
    return base.base if how == "key" and base is not None and base.how == "cache" else None

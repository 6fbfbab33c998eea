"""Calls of functions with `functools.lru_cache` that a capture has made: with what, and what they gave.

The real function is called while its caller is captured. Another process that uses what was captured has to call it as
well: its effects are the program's, its result is kept for other callers, and it may be another there.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from torchdynamo import _native
from torchdynamo.capture.vm.wrap import CONSTANTS
from torchdynamo.core.source import Guard, Position, Source

CACHED: Any = functools._lru_cache_wrapper


class CachedCall(NamedTuple):
    """A call of a function that keeps its results. Arguments are constants, sources, and tuples of these."""

    function: Source
    args: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]
    result: Any
    guarded: bool  # a guard says that the cache holds the result
    position: tuple[Any, ...] | None


def keeps_results(function: Any) -> bool:
    """Return whether a function keeps any results."""
    return type(function) is CACHED and CACHED.cache_info(function)[2] != 0


def guard_of_result(function: Any, source: Source, args: tuple[Any, ...], position: Position | None) -> Guard | None:
    """Return the guard that a cache still holds a result: eager would call the function again after it was cleared.

    None where no guard can tell.
    """
    cache = _native.cache_of(function)
    key = args[0] if len(args) == 1 and type(args[0]) in (int, str) else args
    if cache is None or not all(type(arg) in CONSTANTS for arg in args) or key not in cache:
        return None
    held = cache[key]
    kind = "EQUALS_MATCH" if type(held) in CONSTANTS else "ID_MATCH"  # where there is a limit, a link to the result
    return Guard(Source("key", Source("cache", source), key), kind, held, position)


def is_of_result(guard: Guard) -> bool:
    """Return whether a guard says that a cache still holds a result."""
    base = guard.source.base
    return guard.source.how == "key" and base is not None and base.how == "cache"

"""Drop an entry when an object that one of its guards refers to weakly is freed.

That guard would never hold again, and the entry would count against the function's limit.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from types import CodeType
from typing import Any

from torchdynamo import _native
from torchdynamo.cache import budget
from torchdynamo.core.source import Guard, Source
from torchdynamo.guards.identity import Weak

ABOUT_ABSENCE = frozenset({"NO_KEY", "NOT_KEYED"})  # these still hold when the object is freed


class Ties:
    """Weak references that drop an entry when their object is freed; they live as long as the entry's record."""

    __slots__ = ("__weakref__", "refs")

    def __init__(self, code: CodeType, guards: Collection[Guard], bound: Iterable[Source] = ()) -> None:
        ended = partial(drop, weakref.ref(code), weakref.ref(self))
        objects = {id(obj): obj for guard in guards for obj in weak_objects(guard)}
        roots = {id(root): root for root in (source.root() for source in (*bound, *(each.source for each in guards)))}
        objects |= {id(obj): obj for root in roots.values() for obj in class_at(root)}
        self.refs = [weakref.ref(obj, ended) for obj in objects.values()]


def weak_objects(guard: Guard) -> Iterator[Any]:
    """Yield the objects that a guard's argument refers to weakly."""
    parts = guard.arg if type(guard.arg) is tuple else (guard.arg,)
    for part in parts if guard.kind not in ABOUT_ABSENCE else ():
        obj = part.ref() if type(part) is Weak else None
        if obj is not None:
            yield obj


def class_at(root: Source) -> Iterator[Any]:
    """Yield the class that a source begins at, if it can be freed."""
    obj = root.arg.weak() if root.how == "pinned" and root.arg.weak is not None else None
    if obj is not None:
        yield obj


def drop(
    code: weakref.ref[CodeType],
    ties: weakref.ref[Ties],
    ended: Any,
    entries: Callable[[CodeType], list[_native.Entry]] = _native.cache_entries,
    drop_entry: Callable[[CodeType, _native.Entry], None] = _native.drop_entry,
    ends: Callable[[], bool] = sys.is_finalizing,
) -> None:
    """Drop the entry of an object that was freed.

    Its helpers are bound as defaults, because Python empties modules before it frees the last objects.
    """
    where, which = code(), ties()
    if where is not None and which is not None and not ends():
        for entry in entries(where):
            if getattr(entry.info, "ties", None) is which:
                budget.gone(where, entry)
                drop_entry(where, entry)

"""What a user has said about single functions: disabled, skipped, allowed in a graph, ...

Capture reads these sets; the public decorators fill them. They know objects by identity (equal code objects
or modules with an odd `__eq__` are still different things) and hold them weakly where the type allows it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any


class MarkSet:
    """A set of objects by identity. Something that dies leaves it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._held: dict[int, Any] = {}  # id -> weak reference, or the object itself (wrapped) if it takes none

    @property
    def held(self) -> Mapping[int, Any]:
        """What is behind the marks; empty if there are none."""
        return self._held

    def add(self, obj: Any) -> None:
        """Mark an object."""
        key, held = id(obj), self._held

        def forget(_: Any) -> None:
            held.pop(key, None)

        try:
            held[key] = weakref.ref(obj, forget)
        except TypeError:  # method descriptors of C types: they live as long as their type
            held[key] = _Held(obj)

    def discard(self, obj: Any) -> None:
        """Take the mark off, if it is there."""
        if obj in self:
            del self._held[id(obj)]

    def __contains__(self, obj: Any) -> bool:
        ref = self._held.get(id(obj))
        return ref is not None and ref() is obj

    def __iter__(self) -> Iterator[Any]:
        return (obj for ref in list(self._held.values()) if (obj := ref()) is not None)

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return f"<marks {self.name}: {len(self)}>"


class _Held:
    """Answers like a weak reference, for what cannot be weakly referenced."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def __call__(self) -> Any:
        return self.obj


DISABLED = MarkSet("disabled")  # callables: never inlined, called for real, with nothing compiled inside
SKIPPED = MarkSet("skipped")  # code objects: that frame stays Python; what it calls may be compiled
ASKED = MarkSet("asked")  # code objects of what was given to `compile` or `optimize`, rather than called in there
ALLOWED = MarkSet("allowed")  # callables: one node of the graph, not looked into
DISALLOWED = MarkSet("disallowed")  # callables: never a node; the graph breaks there
CONSTANT = MarkSet("constant")  # callables: run once while capturing, the result burnt in


def graph_break() -> None:
    """End the graph here. Does nothing when the caller is not being compiled; capture knows it by identity."""


def is_compiling() -> bool:
    """Return True for code that is being captured (which answers without calling this), False for code that
    just runs.
    """
    return False

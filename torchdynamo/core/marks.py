"""Sets of functions that the user has marked: disabled, skipped, allowed in a graph and so on.

The public decorators fill these sets, and capture reads them. Objects are known by identity, because equal code
objects, or modules with an odd `__eq__`, are still different things; they are held weakly where possible.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any


class MarkSet:
    """A set of objects by identity; an object that dies leaves the set."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._held: dict[int, Any] = {}  # id -> weak reference, or a wrapper of an object that supports none

    @property
    def held(self) -> Mapping[int, Any]:
        """Mapping from the ids of marked objects to their references, which capture checks quickly."""
        return self._held

    def add(self, obj: Any) -> None:
        """Mark an object."""
        key, held = id(obj), self._held

        def forget(_: Any) -> None:
            held.pop(key, None)

        try:
            held[key] = weakref.ref(obj, forget)
        except TypeError:  # method descriptors of C types, which live as long as their type
            held[key] = _Held(obj)

    def discard(self, obj: Any) -> None:
        """Remove an object's mark, if it has one."""
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
    """Imitates a weak reference to an object that supports none."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def __call__(self) -> Any:
        return self.obj


DISABLED = MarkSet("disabled")  # callables that are never inlined but called in Python, uncompiled all the way down
SKIPPED = MarkSet("skipped")  # code objects whose frames are not compiled; their callees may be
ASKED = MarkSet("asked")  # code objects that were passed to `compile` or `optimize` themselves
ALLOWED = MarkSet("allowed")  # callables that become one node of the graph, without being inlined
DISALLOWED = MarkSet("disallowed")  # callables that never become a node: the graph breaks there
CONSTANT = MarkSet("constant")  # callables that run once during capture; their result is a constant


def graph_break() -> None:
    """Request a graph break here. Does nothing in code that is not compiled; capture recognizes it by identity."""


def is_compiling() -> bool:
    """Return False; in code that is being captured, True (capture answers without calling this)."""
    return False


def why_disabled(fn: Any) -> str:
    """Return what `torch.compiler.disable(reason=...)` has said of a function, as the end of a sentence."""
    said = getattr(fn, "_torchdynamo_disable_msg", None)
    return "" if said is None else f": {said}"

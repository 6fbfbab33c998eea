"""Paths told relative to an object, so that the same paths can be walked from another one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from torchdynamo.core.source import ACCESSORS, LED_TO, Source


class NotRepeatable(Exception):
    """Raised where a call has done what cannot be told relative to its object."""


class At(NamedTuple):
    """Stand for a path that leads by the object, in the argument of a guard."""

    place: int


class Paths:
    """The paths that lead on from an object, each with the index of the one before; the object itself has index 0."""

    def __init__(self, root: Source) -> None:
        self.rows: list[tuple[str, int, Any]] = [("", 0, None)]  # how, from which path, with what
        self.index: dict[Source, int | None] = {root: 0}

    def of(self, source: Source) -> int | None:
        """Return the index of a path; None if it does not lead by the object. Raises NotRepeatable."""
        if source in self.index:
            return self.index[source]
        base = None if source.base is None else self.of(source.base)
        found: int | None = None
        led = source.how in LED_TO
        if led and (base is not None or self.of(source.arg) is not None):
            raise NotRepeatable
        if base is not None:
            found = len(self.rows)
            self.rows.append((source.how, base, source.arg))
        self.index[source] = found
        return found

    def relative(self, arg: Any) -> Any:
        """Return an argument of a guard with each path below the object as an index."""
        if type(arg) is Source:
            index = self.of(arg)
            return arg if index is None else At(index)
        if type(arg) is tuple and any(type(each) in (Source, tuple) for each in arg):
            return tuple([self.relative(each) for each in arg])
        return arg

    def sources(self, root: Source) -> list[Source]:
        """Return the same paths from another object."""
        found = [root]
        for how, base, arg in islice(self.rows, 1, None):
            found.append(Source(how, found[base], arg))
        return found

    def objects(self, root: Any) -> list[Any] | None:
        """Return what is at these paths from an object; None if one leads nowhere."""
        found = [root]
        try:
            for how, base, arg in islice(self.rows, 1, None):
                found.append(ACCESSORS[how].load(found[base], arg))
        except (KeyError, AttributeError, IndexError, TypeError):
            return None
        return found


def has_paths(arg: Any) -> bool:
    """Return whether a relative argument leads by the object."""
    return type(arg) is At or (type(arg) is tuple and any(map(has_paths, arg)))


def is_below(arg: Any) -> bool:
    """Return whether all paths in a relative argument lead by the object."""
    return all(map(is_below, arg)) if type(arg) is tuple else type(arg) is not Source


def absolute(arg: Any, sources: Sequence[Source]) -> Any:
    """Return a relative argument with the paths of an object."""
    if type(arg) is At:
        return sources[arg.place]
    return tuple([absolute(each, sources) for each in arg]) if type(arg) is tuple and has_paths(arg) else arg

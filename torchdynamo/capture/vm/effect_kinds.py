"""The kinds of side effects, and what is said of one: what was written to, and what has to be done for real."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NamedTuple

from torchdynamo.core.source import Source


class EffectKind(Enum):
    """Enumerate the kinds of side effects."""

    ATTRIBUTE = "an attribute of an object, or the contents of a cell"
    THREAD_LOCAL = "an attribute of a thread-local object"
    ITEMS = "the contents of a container, the place of an iterator"
    NAME = "a global, an attribute of a module"
    FUNCTION = "an attribute of a function"
    CLASS = "an attribute of a class"
    TENSOR = "a tensor as an object: an attribute, its gradient, its memory"
    DEFERRED = "a call that is made when the graph has run: a log message, a warning"
    STATE = "a switch of the process: grad mode, autocast, a mode, a layer of torch.func"
    GRAPH = "memory that the graph writes to"
    RANDOM = "random numbers that the graph draws"
    ASSUMPTION = "a fact that only running the graph can tell"


class Namespace(NamedTuple):
    """Describe the names of a module, class, function or tensor.

    What the frame wrote there is found by the id of `place`: the dictionary, the class, the fake tensor. `real` is the
    dictionary, None if the frame made it, and `source` its path.
    """

    kind: EffectKind
    place: Any
    real: dict[str, Any] | None
    source: Source | None
    holder: Any = None  # the class or tensor


class Write(NamedTuple):
    """Describe a side effect to replay. `owner`: an Entity, Namespace, class, tensor or function, by its kind."""

    kind: EffectKind
    owner: Any
    name: Any
    value: Any


class Change(NamedTuple):
    """Describe a store that was written to, with a copy from before. `owner`: an Entity, if the store is one's own."""

    kind: EffectKind
    owner: Any = None
    before: Any = None


class Deferred(NamedTuple):
    """Describe a call for after the graph: its text, what emits its code, and whether a backward may depend on it."""

    text: str
    emit: Callable[[Any], None]
    in_backward: bool


class EffectMark(NamedTuple):
    """Mark a place in the capture: how much of each kind there was."""

    changes: int
    objects: int
    graph: Any
    deferred: int
    state: Any
    assumptions: int


ATTRIBUTES = (EffectKind.ATTRIBUTE, EffectKind.THREAD_LOCAL)
UNKNOWN: Final = object()  # contents of which no copy is kept
AT_ENTRY: Final = object()  # contents that were still those at entry, which had not been looked at
# Namespaces, in the order in which what was written there is done for real
RANKS = {EffectKind.TENSOR: 0, EffectKind.NAME: 1, EffectKind.FUNCTION: 1, EffectKind.CLASS: 2}
# The graph itself does these: nothing is left to replay after it.
IN_PLACE = frozenset({EffectKind.GRAPH, EffectKind.RANDOM, EffectKind.ASSUMPTION})


def copied(items: Any) -> Any:
    """Return a copy of what a container holds; UNKNOWN of what only its type can copy."""
    if items.__class__ is list:
        return list(items)
    if items.__class__ is dict:
        return [(key, *(pair if pair.__class__ is list else (pair,))) for key, pair in items.items()]
    return items if items.__class__ is int else UNKNOWN


def is_same(now: Any, before: Any) -> bool:
    """Return whether two copies hold the same objects, in the same order."""
    if now.__class__ is list and before.__class__ is list:
        return len(now) == len(before) and all(map(is_same, now, before))
    if now.__class__ is tuple and before.__class__ is tuple:
        return len(now) == len(before) and all(a is b for a, b in zip(now, before))
    return now is before or (now.__class__ is int and before.__class__ is int and now == before)

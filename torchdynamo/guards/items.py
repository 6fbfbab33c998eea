"""Items of dicts and sets as facts: a constant is known by its value, any other object by its identity."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torchdynamo.capture.source import Guard, Roots
from torchdynamo.guards.constants import is_constant, same_constant
from torchdynamo.guards.identity import Weak, held, is_same, lower_kept
from torchdynamo.guards.kind import Check, NodeOf


def keep(item: Any) -> Any:
    """What a guard keeps of it."""
    return item if type(item) is Weak else held(item)


def same_item(kept: Any, value: Any) -> bool:
    """Whether it is that item."""
    return same_constant(kept, value) if is_constant(kept) else is_same(kept, value)


def same_key(kept: Any, value: Any) -> bool:
    """Whether a dict would take the one for the other: 1 is True is 1.0 there."""
    if is_constant(kept):
        return kept is value or (is_constant(value) and bool(kept == value))
    return is_same(kept, value)


def lower_item(item: Any) -> tuple[str, Any]:
    """How the native program looks for it."""
    kept = keep(item)
    return ("equal", kept) if is_constant(kept) else lower_kept(kept)


def keep_all(guard: Guard, roots: Roots) -> Guard:
    """Settle a guard whose argument is a collection of items."""
    return guard._replace(arg=tuple(map(keep, guard.arg)))


def keep_one(guard: Guard, roots: Roots) -> Guard:
    """Settle a guard whose argument is an item."""
    return guard._replace(arg=keep(guard.arg))


def lower_items(check: str) -> Callable[[Guard, NodeOf], Check]:
    """The lowering of a guard whose argument is a collection of items."""
    return lambda guard, node_of: (node_of(guard.source), check, tuple(map(lower_item, guard.arg)))


def lower_one(check: str) -> Callable[[Guard, NodeOf], Check]:
    """The lowering of a guard whose argument is an item."""
    return lambda guard, node_of: (node_of(guard.source), check, lower_item(guard.arg))


def has_key(dct: Any, key: Any) -> bool:
    """Whether the dict has the key, asking no key's own `__eq__`."""
    return any(same_key(key, found) for found in dict.keys(dct))


def same_items(kept: Iterable[Any], values: Iterable[Any]) -> bool:
    """Whether two collections without repetition have the same items."""
    facts, found = list(kept), list(values)
    return len(facts) == len(found) and all(any(same_item(fact, value) for fact in facts) for value in found)

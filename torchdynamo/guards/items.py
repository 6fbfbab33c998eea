"""Compare items of dicts and sets with guards: constants by value, nan and other objects by identity."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from torchdynamo import _native
from torchdynamo.capture.vm.wrap import holds_nan
from torchdynamo.core.source import Guard, Roots
from torchdynamo.guards.constants import is_constant, same_constant
from torchdynamo.guards.identity import Weak, held, is_same, lower_kept
from torchdynamo.guards.kind import Check, NodeOf


def keep(item: Any) -> Any:
    """Return what a guard keeps of an item."""
    return item if type(item) is Weak else held(item)


def same_item(kept: Any, value: Any) -> bool:
    """Return whether a value is the kept item."""
    return same_constant(kept, value) if is_constant(kept) and not holds_nan(kept) else is_same(kept, value)


COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")  # one slot of a C class has them all
FAMILIES: dict[type, str] = {
    object: "identity",
    str: "text",
    bytes: "bytes",
    tuple: "tuple",
    frozenset: "frozenset",
    torch.Size: "tuple",  # in some builds it has slots of its own, which do the same
    torch.device: "device",
    **dict.fromkeys((int, float, complex), "number"),
}


def family_of(cls: type) -> str | None:
    """Return how objects of a class are compared; None if the class itself defines that."""
    for base in cls.__mro__:
        if base in FAMILIES:
            own = all(class_attribute(cls, name) is class_attribute(base, name) for name in COMPARISONS)
            return FAMILIES[base] if own else None
        if any(name in base.__dict__ for name in COMPARISONS):
            return None
    return None


def class_attribute(cls: type, name: str) -> Any:
    """Return an attribute of a class, without asking its metaclass; None if there is none."""
    return next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)


def same_key(kept: Any, value: Any) -> bool | None:
    """Return whether a dict counts two keys as equal (1 is True is 1.0); None if only user code could tell."""
    if kept is value:
        return True
    families = family_of(type(kept)), family_of(type(value))
    if None in families or (families == ("frozenset",) * 2 and not (is_constant(kept) and is_constant(value))):
        return None
    if families[0] != families[1] or families[0] == "identity":
        return False
    if families[0] != "tuple":
        return bool(kept == value)
    for one, other in zip(tuple.__iter__(kept), tuple.__iter__(value), strict=False):
        same = same_key(one, other)
        if not same:
            return same
    return tuple.__len__(kept) == tuple.__len__(value)


def lower_item(item: Any) -> tuple[str, Any]:
    """Return the native check of an item, and its payload."""
    kept = keep(item)
    return ("equal", kept) if is_constant(kept) and not holds_nan(kept) else lower_kept(kept)


def keep_all(guard: Guard, roots: Roots) -> Guard:
    """Settle a guard whose argument is a collection of items."""
    return guard._replace(arg=tuple(map(keep, guard.arg)))


def keep_one(guard: Guard, roots: Roots) -> Guard:
    """Settle a guard whose argument is one item."""
    return guard._replace(arg=keep(guard.arg))


def lower_items(check: str) -> Callable[[Guard, NodeOf], Check]:
    """Return the lowering of a guard whose argument is a collection of items, for a native check."""
    return lambda guard, node_of: (node_of(guard.source), check, tuple(map(lower_item, guard.arg)))


def lower_one(check: str) -> Callable[[Guard, NodeOf], Check]:
    """Return the lowering of a guard whose argument is one item, for a native check."""
    return lambda guard, node_of: (node_of(guard.source), check, lower_item(guard.arg))


def has_key(dct: Any, kept: Any) -> bool | None:
    """Return whether a dict has a key; None if only code of a key's class could tell, which is not run."""
    key = kept.ref() if type(kept) is Weak else kept
    if key is None and kept is not None:
        return None
    alike = [
        found for found, number in zip(dict.keys(dct), _native.key_hashes(dct), strict=True) if number == hash(key)
    ]
    answers = [same_key(key, found) for found in alike]
    return None if None in answers else True in answers


def same_items(kept: Iterable[Any], values: Iterable[Any]) -> bool:
    """Return whether two collections without duplicates have the same items."""
    facts, found = list(kept), list(values)
    return len(facts) == len(found) and all(any(same_item(fact, value) for fact in facts) for value in found)

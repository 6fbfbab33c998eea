"""Guard that a dict lacks a key: the object at another source, or an equal integer; that a set lacks that object."""

from __future__ import annotations

from typing import Any

from torchdynamo import _native
from torchdynamo.guards.kind import GuardDifference, GuardKind, read


def lacks(value: Any, key: Any) -> bool:
    """Return whether a dict or set certainly lacks the object; of a set, by identity, and no integer."""
    if isinstance(value, (set, frozenset)):
        kind: Any = set if isinstance(value, set) else frozenset
        return type(key) is not int and all(found is not key for found in kind.__iter__(value))
    return isinstance(value, dict) and not has_it(value, key)


def has_it(dct: dict[Any, Any], key: Any) -> bool:
    """Return whether a dict may have a key: the object, or a key with one of the hashes that the object may have.

    Tensors and classes hash by identity, in one of two ways.
    """
    if type(key) is int:
        return _native.has_key(dct, key) is not False
    hashes = (id(key), object.__hash__(key))
    return any(number in hashes for number in _native.key_hashes(dct)) or any(found is key for found in dict.keys(dct))


KIND = GuardKind(
    "NOT_KEYED",
    holds=lambda value, arg, roots: lacks(value, read(arg, roots)),
    lower=lambda guard, node_of: (node_of(guard.source), "not_keyed", node_of(guard.arg)),
    why=lambda value, arg, roots: GuardDifference(f"[{arg}]", "not there", "there"),
)

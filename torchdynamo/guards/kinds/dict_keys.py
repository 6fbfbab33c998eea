"""Guard the keys of a dict, in order."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from torchdynamo.core.source import Roots
from torchdynamo.guards.items import keep_all, lower_items, same_item
from torchdynamo.guards.kind import GuardDifference, GuardKind, short


def keys_of(value: Any) -> list[Any] | None:
    """Return the keys of a dict without calling a subclass's methods; None for another object."""
    if isinstance(value, OrderedDict):
        return list(OrderedDict.__iter__(value))
    return list(dict.keys(value)) if isinstance(value, dict) else None


def holds(value: Any, arg: tuple[Any, ...], roots: Roots) -> bool:
    keys = keys_of(value)
    return keys is not None and len(keys) == len(arg) and all(map(same_item, arg, keys))


KIND = GuardKind(
    "DICT_KEYS",
    holds=holds,
    lower=lower_items("keys"),
    why=lambda value, arg, roots: GuardDifference(" keys", short(list(arg)), short(keys_of(value))),
    settle=keep_all,
)

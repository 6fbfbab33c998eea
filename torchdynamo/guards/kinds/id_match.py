"""The same object. Held weakly, unless it is something that owns nothing of the user's."""

from __future__ import annotations

import types
import weakref
from typing import Any

from torchdynamo.guards.kind import Kind

OWN_NOTHING = (
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)


def lower(guard: Any, node_of: Any) -> tuple[int, str, Any]:
    node = node_of(guard.source)
    if isinstance(guard.arg, OWN_NOTHING):
        return node, "is", guard.arg
    try:
        return node, "is_weak", weakref.ref(guard.arg)
    except TypeError:
        return node, "is", guard.arg


KIND = Kind("ID_MATCH", holds=lambda value, arg, roots: value is arg, lower=lower, tell=repr)

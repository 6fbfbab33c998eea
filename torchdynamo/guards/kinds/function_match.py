"""The same function by its code; the same module, class or C function."""

from __future__ import annotations

import types
from typing import Any

from torchdynamo.guards.kind import Kind


def holds(value: Any, arg: Any, roots: Any) -> bool:
    if type(arg) is types.FunctionType:
        return type(value) is types.FunctionType and value.__code__ is arg.__code__
    return value is arg


def lower(guard: Any, node_of: Any) -> tuple[int, str, Any]:
    node = node_of(guard.source)
    if type(guard.arg) is types.FunctionType:
        return node, "code", guard.arg.__code__
    return node, "is", guard.arg


KIND = Kind("FUNCTION_MATCH", holds=holds, lower=lower, tell=repr)

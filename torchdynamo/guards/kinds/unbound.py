"""A cell or slot that is empty."""

from __future__ import annotations

from typing import Any

from torchdynamo.guards.kind import Kind


def lower(guard: Any, node_of: Any) -> tuple[int, str, Any]:
    if guard.source.how == "local":
        return -1, "unbound_local", guard.source.arg
    if guard.source.how == "attr":
        return node_of(guard.source.base), "unbound_attr", guard.source.arg
    return node_of(guard.source), "unbound_cell", None


def holds(value: Any, arg: Any, roots: Any) -> bool:
    try:
        value.cell_contents  # noqa: B018 - raises if empty
    except ValueError:
        return True
    return False


KIND = Kind("UNBOUND", holds=holds, lower=lower, tell=lambda value: "it has a value")

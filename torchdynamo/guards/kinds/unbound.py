"""Guard that a variable, cell or slot is empty. The source is the empty place itself; for a cell it may be the cell."""

from __future__ import annotations

from types import CellType
from typing import Any

from torchdynamo.core.source import Guard, Roots
from torchdynamo.guards.kind import MISSING, GuardDifference, GuardKind, NodeOf, short


def holds(value: Any, arg: Any, roots: Roots) -> bool:
    if type(value) is not CellType:
        return value is MISSING
    try:
        value.cell_contents  # noqa: B018 - raises if empty
    except ValueError:
        return True
    return False


def lower(guard: Guard, node_of: NodeOf) -> tuple[int, str, Any]:
    source = guard.source
    if source.how == "local":
        return -1, "unbound_local", source.arg
    if source.base is not None and source.how == "attr":
        return node_of(source.base), "unbound_attr", source.arg
    if source.base is not None and source.how == "contents":
        return node_of(source.base), "unbound_cell", None
    return node_of(source), "unbound_cell", None


KIND = GuardKind(
    "UNBOUND",
    holds=holds,
    lower=lower,
    why=lambda value, arg, roots: GuardDifference("", "without a value", short(value)),
    describe=lambda arg: "",
)

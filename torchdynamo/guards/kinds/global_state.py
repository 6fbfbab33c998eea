"""Guard process and thread state (grad mode, autocast, default dtype, modes, flags) by one packed comparison."""

from __future__ import annotations

from typing import Any

from torchdynamo import _native
from torchdynamo.core.source import Guard, Roots
from torchdynamo.guards.kind import GuardDifference, GuardKind


def settle(guard: Guard, roots: Roots) -> Guard:
    return guard if guard.arg is not None else guard._replace(arg=_native.global_state())


def why(value: Any, arg: Any, roots: Roots) -> GuardDifference:
    """Name each field that differs."""
    packed, modes = _native.global_state()
    old, new = _native.global_state_fields(arg[0]), _native.global_state_fields(packed)
    moved = [name for name in old if old[name] != new[name]]
    if not moved and modes != arg[1]:
        return GuardDifference(" modes", repr(arg[1]), repr(modes))
    return GuardDifference("", *(", ".join(f"{name}={fields[name]}" for name in moved) for fields in (old, new)))


KIND = GuardKind(
    "GLOBAL_STATE",
    holds=lambda value, arg, roots: _native.global_state() == arg,
    lower=lambda guard, node_of: (-1, "state", guard.arg),
    why=why,
    describe=lambda arg: "",
    settle=settle,
)

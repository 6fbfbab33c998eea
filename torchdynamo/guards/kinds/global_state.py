"""Grad mode, autocast, default dtype, modes and flags of the process and thread, in one packed compare."""

from __future__ import annotations

from torchdynamo import _native
from torchdynamo.guards.kind import Kind

KIND = Kind(
    "GLOBAL_STATE",
    holds=lambda value, arg, roots: _native.global_state() == arg,
    lower=lambda guard, node_of: (-1, "state", guard.arg),
    tell=lambda value: "another state of torch (grad mode, autocast, default dtype, ...)",
)

"""Guard the identity of an object. It is held weakly, unless it owns nothing of the user's."""

from __future__ import annotations

from typing import Any

from torchdynamo.core.source import Guard, Roots
from torchdynamo.guards.identity import Weak, held, is_same, lower_kept
from torchdynamo.guards.kind import GuardKind, NodeOf


def settle(guard: Guard, roots: Roots) -> Guard:
    return guard if type(guard.arg) is Weak else guard._replace(arg=held(guard.arg))


def lower(guard: Guard, node_of: NodeOf) -> tuple[int, str, Any]:
    kept = guard.arg if type(guard.arg) is Weak else held(guard.arg)
    return node_of(guard.source), *lower_kept(kept)


KIND = GuardKind("ID_MATCH", holds=lambda value, arg, roots: is_same(arg, value), lower=lower, settle=settle)

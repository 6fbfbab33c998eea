"""A class that an abstract class does not take for a subclass. It might, once somebody calls `register`.

Every registration in the process changes one token, and each hit compares that. Backends import much when they first
compile, and register classes on the way: so the token is read when the frame is done, if the answer is still the same.
"""

from __future__ import annotations

from torchdynamo.core.source import Guard, Roots
from torchdynamo.guards.kind import GuardDifference, GuardKind, NodeOf, read


def settle(guard: Guard, roots: Roots) -> Guard:
    """Return the token alone."""
    cls, abstract, token = guard.arg
    now = token if issubclass(cls, abstract) else read(guard.source, roots)
    return guard._replace(kind="EQUALS_MATCH", arg=now)


def lower(guard: Guard, node_of: NodeOf) -> tuple[int, str, int]:
    return node_of(guard.source), "equal", guard.arg[2]


KIND = GuardKind(
    "UNREGISTERED",
    holds=lambda value, arg, roots: bool(value == arg[2]),
    lower=lower,
    settle=settle,
    why=lambda value, arg, roots: GuardDifference("", repr(arg[2]), repr(value)),
)

"""Guard that an abstract class does not count a class as its subclass, which `register` may change.

Every registration in the process changes one token, and each hit compares it. Backends import many modules in their
first compile and register classes on the way, so the token is read when the frame is done, if the answer still holds.
"""

from __future__ import annotations

from torchdynamo.core.source import Guard, Roots
from torchdynamo.guards.kind import GuardDifference, GuardKind, NodeOf, read


def settle(guard: Guard, roots: Roots) -> Guard:
    """Replace the guard by one that compares the token."""
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

"""Describe one compiler of the ensemble: what it takes, what it costs, and how it builds a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from torchdynamo.backends.ensemble.requirements import Requirement
from torchdynamo.backends.ensemble.subgraph import Subgraph

Run: TypeAlias = Callable[..., Any]
"""Callable that a member builds: it takes the graph's inputs and returns its results, as `gm.forward` does.

If it was built with constants, it takes the inputs at `Subgraph.moving` only.
"""


class Declined(Exception):
    """Raised by a member that does not build a graph; its message is the reason, shown by `explain`."""


class Member(NamedTuple):
    """One compiler of the ensemble. Each file in `members/` registers its own by `register_member`."""

    name: str
    build: Callable[[Subgraph], Run]
    """Compiles a graph. Raises Declined with a reason, or whatever the compiler raises."""
    requires: Sequence[Requirement] = ()
    """Checked in this order before anything is built; the first that is not met is the reason shown."""
    cost: float = 1.0
    """Seconds that a build is expected to take for a graph of 100 nodes."""
    rank: int = 50
    """Who wins a tie: the member of the lowest rank, which is the most exact, the smallest and the cheapest."""
    makes_constants: bool = False
    """True if it makes constants of the parameters where the options allow it."""
    has_threads: bool = False
    """True if what it builds computes on threads of its own, whose number is fixed then."""
    checks_indices: bool = False
    """True if what it builds raises for indices out of range by construction, so that they are not tried: a kernel that
    raises where C++ exceptions do not work ends the process."""
    isolated: bool = False
    """True if it is built and tried in a process of its own before it is built in this one: it may crash or hang."""


MEMBERS: dict[str, Member] = {}
"""Name -> member, in the order of their ranks."""


def register_member(member: Member) -> Member:
    """Register a member under its name, in the order of ranks. Raises ValueError for a name that is taken."""
    if member.name in MEMBERS:
        raise ValueError(f"the ensemble has a member called {member.name!r} already")
    MEMBERS[member.name] = member
    ordered = sorted(MEMBERS.values(), key=lambda each: each.rank)
    MEMBERS.clear()
    MEMBERS.update((each.name, each) for each in ordered)
    return member


def why_declined(member: Member, subgraph: Subgraph) -> str | None:
    """Return the first requirement of a member that a graph does not meet, as a sentence; None for none."""
    return next(filter(None, (requirement(subgraph) for requirement in member.requires)), None)

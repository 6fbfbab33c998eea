"""Check facts when a backward runs, which is later than the frame."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import torch
import torch.fx

from torchdynamo.core.source import Guard, Roots
from torchdynamo.graph.backward_as_written import BackwardAsWritten
from torchdynamo.guards.kind import read
from torchdynamo.guards.kinds import KINDS
from torchdynamo.guards.program import complete

NO_FRAME = Roots({}, {}, {}, {})


def settle(gm: torch.fx.GraphModule, roots: Roots) -> bool:
    """Have the backwards of a graph check what they have read when they run; return whether one has read anything."""
    found = list(backwards_in(gm))
    for backward in found:
        backward.settle(functools.partial(are_true, complete(backward.facts, roots)))
    return bool(found)


def backwards_in(gm: torch.fx.GraphModule) -> Iterator[BackwardAsWritten]:
    """Yield the backwards that a graph and its bodies may run as they are written."""
    for module in gm.modules():
        yield from (each for each in vars(module).values() if isinstance(each, BackwardAsWritten))


def are_true(facts: Sequence[Guard]) -> bool:
    """Return whether all of these facts are true now."""
    return all(map(is_true, facts))


def is_true(fact: Guard) -> bool:
    """Return whether a fact about what modules, classes and functions of C lead to is true now."""
    return KINDS[fact.kind].holds(read(fact.source, NO_FRAME), fact.arg, NO_FRAME)

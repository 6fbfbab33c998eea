"""Make a backend of one member of the ensemble, for programs that name a runtime instead of leaving the choice."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from torchdynamo.backends.ensemble.member import MEMBERS, Declined, Member, Run, why_declined
from torchdynamo.backends.ensemble.requirements import MISSING
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.backends.preserve import leaves_inputs_alone
from torchdynamo.backends.registry import fixed_sizes, tries_graphs
from torchdynamo.core.reasons import explained
from torchdynamo.errors import FallbackWarning
from torchdynamo.hook.user_warnings import warn_user

_LOG = logging.getLogger("torchdynamo.tuning")


def as_backend(member_name: str, backend_name: str) -> Callable[..., Run | None]:
    """Return the backend that compiles each graph by one member, with the parameters as inputs.

    It declines what the member declines; the logger "torchdynamo.tuning" says why, and a FallbackWarning if the
    member's package is not installed.
    """

    @tries_graphs
    @fixed_sizes
    @leaves_inputs_alone
    def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Run | None:
        member = MEMBERS[member_name]
        run = _build(member, backend_name, gm, example_inputs)
        return None if run is None else PerThreads(member, backend_name, gm, run)

    backend.__name__ = backend_name
    backend.__doc__ = f"Compile the graph by {member_name}; return None if it declines."
    return backend


def _build(member: Member, name: str, gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Run | None:
    subgraph = Subgraph(gm, inputs)
    reason = why_declined(member, subgraph)
    if reason is None:
        try:
            return member.build(subgraph)
        except Declined as declined:
            reason = str(declined)
    if MISSING in reason:
        text = f"backend {name!r}: {reason}; the graph runs eagerly"
        warn_user(explained(text, "backend failed"), FallbackWarning)
    _LOG.info("%s declines a graph: %s", name, reason)
    return None


class PerThreads:
    """Runs a graph by what a member built for the number of threads that `torch.get_num_threads` says now."""

    def __init__(self, member: Member, name: str, gm: torch.fx.GraphModule, run: Run) -> None:
        """Make the callable. name: of the backend. run: what the member built for the number of threads of now."""
        self.member = member
        self.name = name
        self.gm = gm
        self.runs: dict[int, Run] = {torch.get_num_threads(): run}

    def __call__(self, *args: Any) -> Any:
        threads = torch.get_num_threads()
        run = self.runs.get(threads)
        if run is None:
            run = self.runs[threads] = _build(self.member, self.name, self.gm, args) or self.gm.forward
        return run(*args)

"""Inductor, with the parameters as inputs: the only member beside eager that differentiates and takes symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.fx

from torchdynamo.backends.builtin.inductor import inductor
from torchdynamo.backends.ensemble.member import Declined, Member, Run, register_member
from torchdynamo.backends.ensemble.requirements import no_random_numbers, traceable
from torchdynamo.backends.ensemble.subgraph import Subgraph


def by_inductor(
    gm: torch.fx.GraphModule, inputs: Sequence[Any], mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Run:
    """Compile a graph by backend `inductor`. Raises Declined where that leaves it to eager."""
    made = inductor(gm, inputs, mode=mode, options=options)
    if made is None:
        raise Declined("Inductor leaves graphs of this kind to eager")
    return made


def build(subgraph: Subgraph) -> Run:
    return by_inductor(subgraph.gm, subgraph.example_inputs)


register_member(Member("inductor", build, (no_random_numbers, traceable), cost=20.0, rank=20, checks_indices=True))

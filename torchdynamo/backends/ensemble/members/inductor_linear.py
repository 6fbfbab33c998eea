"""Inductor after the linear layers have been given to oneDNN: it fuses what lies between them."""

from __future__ import annotations

from torchdynamo.backends.ensemble import onednn_linear
from torchdynamo.backends.ensemble.member import Member, Run, register_member
from torchdynamo.backends.ensemble.members.inductor import by_inductor
from torchdynamo.backends.ensemble.members.linear import REQUIRES, rewritten
from torchdynamo.backends.ensemble.requirements import traceable
from torchdynamo.backends.ensemble.subgraph import Subgraph


def build(subgraph: Subgraph) -> Run:
    return by_inductor(rewritten(subgraph, onednn_linear.opaquely), subgraph.example_inputs)


register_member(Member("inductor_linear", build, (*REQUIRES, traceable), cost=20.0, rank=25, checks_indices=True))

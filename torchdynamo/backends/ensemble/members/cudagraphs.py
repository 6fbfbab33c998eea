"""CUDA graphs: the graph's own operators, or Inductor's kernels, recorded once and replayed."""

from __future__ import annotations

from torchdynamo.backends.builtin.cudagraphs import cudagraphs
from torchdynamo.backends.ensemble.member import Declined, Member, Run, register_member
from torchdynamo.backends.ensemble.members.inductor import by_inductor
from torchdynamo.backends.ensemble.requirements import (
    PLAIN_INFERENCE,
    fixed_sizes,
    no_random_numbers,
    on_cuda,
    traceable,
)
from torchdynamo.backends.ensemble.subgraph import Subgraph


def recorded(subgraph: Subgraph) -> Run:
    made = cudagraphs(subgraph.gm, subgraph.example_inputs)
    if made is None:
        raise Declined("a replay would not repeat what the graph does")
    return made


def by_inductor_recorded(subgraph: Subgraph) -> Run:
    return by_inductor(subgraph.gm, subgraph.example_inputs, mode="reduce-overhead")


register_member(Member("cudagraphs", recorded, (on_cuda, *PLAIN_INFERENCE), cost=0.5, rank=15))
register_member(
    Member(
        "inductor_cudagraphs",
        by_inductor_recorded,
        (on_cuda, fixed_sizes, no_random_numbers, traceable),
        cost=20.0,
        rank=22,
    )
)

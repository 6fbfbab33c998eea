"""CUDA graphs: the graph's own operators, or Inductor's kernels, recorded once and replayed."""

from __future__ import annotations

from torchdynamo.backends.builtin.cudagraphs import cudagraphs
from torchdynamo.backends.cuda_graphs.limits import WATCHED
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
        raise Declined("not all inputs are on one GPU")
    return replaying(made, subgraph)


def by_inductor_recorded(subgraph: Subgraph) -> Run:
    return replaying(by_inductor(subgraph.gm, subgraph.example_inputs, mode="reduce-overhead"), subgraph)


def replaying(made: Run, subgraph: Subgraph) -> Run:
    """Return a compiled graph that has recorded, unless it writes to its inputs: replays are what is to be timed."""
    if not subgraph.effects.mutated:
        for _ in range(WATCHED + 1):
            made(*subgraph.example_inputs)
    return made


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

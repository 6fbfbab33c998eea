"""Inductor with the parameters as constants: folded, and packed for oneDNN's kernels."""

from __future__ import annotations

from typing import Any

import torch

from torchdynamo.backends.ensemble import clamped_activations
from torchdynamo.backends.ensemble.member import Member, Run, register_member
from torchdynamo.backends.ensemble.members.inductor import by_inductor
from torchdynamo.backends.ensemble.requirements import (
    constants_allowed,
    no_gradients,
    no_inference_parameters,
    no_random_numbers,
    no_writes,
    on_cpu,
    traceable,
)
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.graph import patches

ACL = "torch.ops.mkldnn._is_mkldnn_acl_supported"
REQUIRES = (
    constants_allowed,
    no_gradients,
    no_random_numbers,
    no_writes,
    on_cpu,
    no_inference_parameters,
    traceable,
)


class Yes:
    """An operator that answers True, and is otherwise what it stands in for: others look for its overloads."""

    def __init__(self, operator: Any) -> None:
        self.operator = operator

    def __call__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.operator, name)


def build(subgraph: Subgraph) -> Run:
    """Compile with constants. Inductor packs float32 weights for MKL on x86, unless it takes the CPU for another."""
    frozen = subgraph.frozen()
    clamped_activations.rewrite(frozen.module.graph)
    frozen.module.recompile()
    with torch.no_grad(), patches.replaced({ACL: Yes(torch.ops.mkldnn._is_mkldnn_acl_supported)}):
        return by_inductor(frozen.module, frozen.inputs, options={"freezing": True})


register_member(
    Member("inductor_freezing", build, REQUIRES, cost=25.0, rank=30, makes_constants=True, checks_indices=True)
)

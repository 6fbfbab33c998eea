"""TorchScript: the graph traced, frozen and fused, by three of its fusers."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchdynamo.backends.ensemble.member import Member, Run, register_member
from torchdynamo.backends.ensemble.requirements import (
    PLAIN_INFERENCE,
    no_inference_parameters,
    no_integer_division,
    on_cpu,
)
from torchdynamo.backends.ensemble.subgraph import Subgraph

WARM_UPS = 3  # calls in which TorchScript profiles and then compiles
REQUIRES = (*PLAIN_INFERENCE, no_inference_parameters)


def traced(subgraph: Subgraph, then: Callable[[Any], Any]) -> Run:
    """Trace the graph, with constants where they are allowed, hand the trace to `then`, and warm it up."""
    frozen = subgraph.frozen()
    module = frozen.module.eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # deprecation of TorchScript, and remarks on constants that our guards hold
        trace: Callable[..., Any] = torch.jit.trace
        made: Run = then(trace(module, tuple(frozen.inputs), check_trace=False, strict=False))
        for _ in range(WARM_UPS):
            made(*frozen.inputs)
    return made


def ts(subgraph: Subgraph) -> Run:
    return traced(subgraph, torch.jit.freeze)


def ofi(subgraph: Subgraph) -> Run:
    return traced(subgraph, torch.jit.optimize_for_inference)


@contextlib.contextmanager
def fusing_by_onednn() -> Iterator[None]:
    """Switch oneDNN Graph on inside of the block: a flag of the process, read while a trace is compiled."""
    before = torch.jit.onednn_fusion_enabled()
    torch.jit.enable_onednn_fusion(True)
    try:
        yield
    finally:
        torch.jit.enable_onednn_fusion(before)


def onednn_graph(subgraph: Subgraph) -> Run:
    with fusing_by_onednn():
        return traced(subgraph, torch.jit.freeze)


register_member(Member("ts", ts, REQUIRES, cost=1.0, rank=45, makes_constants=True))
register_member(Member("ofi", ofi, REQUIRES, cost=1.0, rank=42, makes_constants=True))
register_member(
    Member(
        "onednn_graph", onednn_graph, (*REQUIRES, on_cpu, no_integer_division), cost=0.8, rank=40, makes_constants=True
    )
)

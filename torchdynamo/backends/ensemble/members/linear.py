"""The graph as captured, with its linear layers in oneDNN's kernel."""

from __future__ import annotations

import copy

import torch

from torchdynamo.backends.ensemble import onednn_linear
from torchdynamo.backends.ensemble.member import Declined, Member, Run, register_member
from torchdynamo.backends.ensemble.requirements import (
    Requirement,
    has_linear,
    no_autocast,
    no_gradients,
    no_modes,
    no_random_numbers,
    no_writes,
    on_cpu,
)
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.graph.modules import graph_module


def onednn_is_on(subgraph: Subgraph) -> str | None:
    on = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    return None if on else "torch.backends.mkldnn is not available, or switched off"


REQUIRES: tuple[Requirement, ...] = (
    no_gradients,
    no_random_numbers,
    no_writes,
    no_modes,
    on_cpu,
    no_autocast,
    onednn_is_on,
    has_linear,
)


def rewritten(subgraph: Subgraph, kernel: onednn_linear.Kernel) -> torch.fx.GraphModule:
    """Return a copy of the graph with linear layers in oneDNN's kernel. Raises Declined where none is rewritten."""
    graph = copy.deepcopy(subgraph.gm.graph)
    if not onednn_linear.rewrite(graph, kernel):
        raise Declined("no linear layer is in float32 with eight rows or more")
    module = graph_module(subgraph.gm, graph)
    module.meta = dict(subgraph.gm.meta)
    return module


def build(subgraph: Subgraph) -> Run:
    forward: Run = rewritten(subgraph, onednn_linear.directly).forward
    return forward


register_member(Member("linear", build, REQUIRES, cost=0.05, rank=10, checks_indices=True))

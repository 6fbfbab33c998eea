"""Graphs as modules."""

from __future__ import annotations

import torch
import torch.fx

from torchdynamo.graph.leftovers import text_goes_with


def graph_module(root: torch.nn.Module, graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """Make a module of a graph, called as any module is: FX's own prints where it raises, and cuts the traceback."""
    made = torch.fx.GraphModule(root, graph)
    type(made)._wrapped_call = staticmethod(torch.nn.Module.__call__)  # type: ignore[attr-defined]  # each has a class
    text_goes_with(made)
    return made

"""Make modules from graphs."""

from __future__ import annotations

import torch
import torch.fx

from torchdynamo.graph.leftovers import free_text_with


def graph_module(root: torch.nn.Module, graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """Return a graph as a module, called as any module is: FX's own call prints errors and cuts tracebacks."""
    made = torch.fx.GraphModule(root, graph)
    type(made)._wrapped_call = staticmethod(torch.nn.Module.__call__)  # type: ignore[attr-defined]  # each has a class
    free_text_with(made)
    return made

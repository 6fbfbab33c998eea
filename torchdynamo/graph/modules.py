"""Make modules from graphs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.fx

from torchdynamo.graph.leftovers import free_text_with


def graph_module(root: torch.nn.Module, graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """Return a graph as a module, called as any module is: FX's own call prints errors and cuts tracebacks."""
    made = torch.fx.GraphModule(root, graph)
    type(made)._wrapped_call = staticmethod(torch.nn.Module.__call__)  # type: ignore[attr-defined]  # each has a class
    free_text_with(made)
    return made


def close(graph: torch.fx.Graph, outputs: Sequence[torch.fx.Node]) -> None:
    """End the graph."""
    result = graph.output(tuple(outputs))
    result.meta = {"example_value": tuple(node.meta["example_value"] for node in outputs), "stack_trace": ""}

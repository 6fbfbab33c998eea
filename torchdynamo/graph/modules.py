"""Make modules from graphs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
import torch.fx
from torch.fx.node import _get_qualified_name

from torchdynamo.graph.leftovers import free_text_with

TORCHS = re.compile(r"\btorch(?:\.[A-Za-z_]\w*)+")


class BoundGraphModule(torch.fx.GraphModule):
    """A graph module that calls the functions in its graph, whatever torch's modules have under their names later.

    FX writes a function of torch as its name, `torch.sin(x)`, which would be looked up in each call.
    """

    def recompile(self) -> Any:
        """Write the graph's code anew, and bind the names of torch in it."""
        code = super().recompile()
        space: dict[str, Any] = type(self).forward.__globals__
        if "torch" in space:
            space["torch"] = bound_names(self.graph, code.src)
        return code


def bound_names(graph: torch.fx.Graph, text: str) -> Any:
    """Return what stands for the module `torch` in a graph's code: a namespace of the names that occur in it.

    Those of the graph's functions are these functions; others, of dtypes and the like, are what they are now.
    """
    functions = {node.target for node in graph.nodes if node.op == "call_function"}
    known = {_get_qualified_name(fn): fn for fn in functions if callable(fn)}
    root = ModuleType("torch")
    for name in sorted(set(TORCHS.findall(text))):  # `add` before `add.Tensor`, which is then an attribute of it
        space: Any = root
        real: Any = torch
        parts = name.split(".")
        for at, part in enumerate(parts[1:], 2):
            real = known.get(".".join(parts[:at]), getattr(real, part, None))
            space = vars(space).setdefault(part, real if at == len(parts) else ModuleType(part))
            if not isinstance(space, ModuleType):
                break
    return root


def graph_module(root: torch.nn.Module, graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """Return a graph as a module, called as any module is: FX's own call prints errors and cuts tracebacks."""
    made = BoundGraphModule(root, graph)
    type(made)._wrapped_call = staticmethod(torch.nn.Module.__call__)  # type: ignore[attr-defined]  # each has a class
    free_text_with(made)
    return made


def close(graph: torch.fx.Graph, outputs: Sequence[torch.fx.Node]) -> None:
    """End the graph."""
    result = graph.output(tuple(outputs))
    result.meta = {"example_value": tuple(node.meta["example_value"] for node in outputs), "stack_trace": ""}

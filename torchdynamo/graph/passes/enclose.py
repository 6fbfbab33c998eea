"""A stretch of the graph becomes the body of one operation: what a checkpoint covers.

The body was followed in place, so all that it does is known. Here, when the graph is complete and every use of its
results is there to see, its nodes move to a graph of their own, whose inputs are what it took from outside.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import torch
import torch.fx

from torchdynamo.graph.modules import graph_module

Node = torch.fx.Node


class Stretch(NamedTuple):
    """Consecutive nodes, and what is to run them."""

    nodes: list[Node]
    target: Any
    kwargs: dict[str, Any]


def enclose(root: torch.nn.Module, graph: torch.fx.Graph, stretches: list[Stretch]) -> None:
    """Replace each stretch whose inputs and results are tensors; another one stays as it is, which is right too."""
    for index, stretch in enumerate(stretches):
        alive = set(graph.nodes)
        nodes = [node for node in stretch.nodes if node in alive]
        inside = set(nodes)
        inputs = list(dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in inside))
        outputs = [node for node in nodes if any(user not in inside for user in node.users)]
        if outputs and all(isinstance(n.meta["example_value"], torch.Tensor) for n in (*inputs, *outputs)):
            name = f"body_{index}"
            setattr(root, name, body(root, nodes, inputs, outputs))
            replace(graph, stretch, name, inputs, outputs)
            for node in reversed(nodes):
                graph.erase_node(node)


def body(root: torch.nn.Module, nodes: list[Node], inputs: list[Node], outputs: list[Node]) -> torch.fx.GraphModule:
    """Return the same nodes as a graph of its own, with the bodies they name."""
    inner, owner = torch.fx.Graph(), torch.nn.Module()
    here: dict[Node, Node] = {}
    for node in inputs:
        here[node] = inner.placeholder(node.name)
        here[node].meta = {"example_value": node.meta["example_value"]}
    for node in nodes:
        here[node] = inner.node_copy(node, here.__getitem__)
        here[node].meta = dict(node.meta)
        if node.op == "get_attr":
            setattr(owner, str(node.target), getattr(root, str(node.target)))
    result = inner.output(tuple(here[node] for node in outputs))
    result.meta = {"example_value": tuple(node.meta["example_value"] for node in outputs), "stack_trace": ""}
    return graph_module(owner, inner)


def replace(graph: torch.fx.Graph, stretch: Stretch, name: str, inputs: list[Node], outputs: list[Node]) -> None:
    """Put an operation behind a stretch of nodes, and its results in the place of theirs."""
    trace = outputs[0].meta.get("stack_trace", "")
    with graph.inserting_before(stretch.nodes[-1].next):
        holder = graph.create_node("get_attr", name)
        holder.meta = {"example_value": None, "stack_trace": trace}
        call = graph.call_function(stretch.target, (holder, *inputs), stretch.kwargs)
        call.meta = {"example_value": tuple(n.meta["example_value"] for n in outputs), "stack_trace": trace}
        inside = set(stretch.nodes)
        for index, node in enumerate(outputs):
            item = graph.call_function(operator.getitem, (call, index))
            item.meta = {"example_value": node.meta["example_value"], "stack_trace": trace}
            node.replace_all_uses_with(item, delete_user_cb=lambda user: user not in inside)

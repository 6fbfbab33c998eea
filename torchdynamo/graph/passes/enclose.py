"""Move a range of nodes into the body of one operation, such as a checkpoint.

The body was captured in place, so its side effects are known. When the graph is complete and all uses of its results
are known, its nodes move to a graph of their own, whose inputs are the outside nodes that they use.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import torch
import torch.fx

from torchdynamo.graph.modules import graph_module

Node = torch.fx.Node


class NodeRange(NamedTuple):
    """Consecutive nodes, and the operation that is to run them."""

    nodes: list[Node]
    target: Any
    kwargs: dict[str, Any]


def enclose(root: torch.nn.Module, graph: torch.fx.Graph, ranges: list[NodeRange]) -> None:
    """Replace each range whose inputs and results are tensors by its operation; others stay as they are."""
    for index, node_range in enumerate(ranges):
        alive = set(graph.nodes)
        nodes = [node for node in node_range.nodes if node in alive]
        inside = set(nodes)
        inputs = list(dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in inside))
        outputs = [node for node in nodes if any(user not in inside for user in node.users)]
        if outputs and all(isinstance(n.meta["example_value"], torch.Tensor) for n in (*inputs, *outputs)):
            name = f"body_{index}"
            setattr(root, name, body(root, nodes, inputs, outputs))
            replace(graph, node_range, name, inputs, outputs)
            for node in reversed(nodes):
                graph.erase_node(node)


def body(root: torch.nn.Module, nodes: list[Node], inputs: list[Node], outputs: list[Node]) -> torch.fx.GraphModule:
    """Return copies of the nodes as a graph module of its own, with the nested bodies that they use."""
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


def replace(graph: torch.fx.Graph, node_range: NodeRange, name: str, inputs: list[Node], outputs: list[Node]) -> None:
    """Add the operation after the range, and use its results in the place of the range's."""
    trace = outputs[0].meta.get("stack_trace", "")
    with graph.inserting_before(node_range.nodes[-1].next):
        holder = graph.create_node("get_attr", name)
        holder.meta = {"example_value": None, "stack_trace": trace}
        call = graph.call_function(node_range.target, (holder, *inputs), node_range.kwargs)
        call.meta = {"example_value": tuple(n.meta["example_value"] for n in outputs), "stack_trace": trace}
        inside = set(node_range.nodes)
        for index, node in enumerate(outputs):
            item = graph.call_function(operator.getitem, (call, index))
            item.meta = {"example_value": node.meta["example_value"], "stack_trace": trace}
            node.replace_all_uses_with(item, delete_user_cb=lambda user: user not in inside)

"""A graph in several, one after the other: what comes out of the earlier ones goes into the later ones.

For graphs that have to stop and look at a value before they go on (graph/rerun.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.fx

from torchdynamo.graph.mutation import Effects, effects_of, note_effects

if TYPE_CHECKING:
    from torchdynamo.graph.build import GraphBuilder

Node = torch.fx.Node


class Stage(NamedTuple):
    """One of the graphs; its inputs and results by the names they have in the whole."""

    module: torch.fx.GraphModule
    inputs: list[str]
    results: list[str]


def can_be_cut(builder: GraphBuilder, nodes: Sequence[Node], cuts: Sequence[Node]) -> bool:
    """Whether it can be cut after these nodes: tensors of fixed sizes go from part to part, and nothing else."""
    if builder.is_enclosing():
        return False
    order = {node: at for at, node in enumerate(nodes)}
    if not all(is_fixed(node.meta.get("example_value")) for node in nodes if node.op == "placeholder"):
        return False
    carried = {
        node for cut in cuts for node in nodes if node.op != "placeholder" and order[node] <= order[cut] for user in
        node.users if order[user] > order[cut]
    }  # fmt: skip
    return all(is_fixed(node.meta.get("example_value")) for node in carried)


def is_fixed(example: object) -> bool:
    """Whether a value is a tensor whose sizes are known."""
    return isinstance(example, torch.Tensor) and all(type(size) is int for size in example.shape)


def cut(gm: torch.fx.GraphModule, after: Sequence[str]) -> list[Stage]:
    """The stages of a finished graph, cut after the nodes of these names."""
    nodes = [node for node in gm.graph.nodes if node.op not in ("placeholder", "output")]
    (output,) = gm.graph.find_nodes(op="output")
    groups: list[list[Node]] = [[]]
    for node in nodes:
        groups[-1].append(node)
        if node.name in after:
            groups.append([])
    wanted = set(output.all_input_nodes)
    return [stage(gm, group, wanted) for group in groups if group]


def stage(gm: torch.fx.GraphModule, nodes: list[Node], wanted: set[Node]) -> Stage:
    """These nodes as a graph of their own."""
    inside = set(nodes)
    inputs = list(dict.fromkeys(each for node in nodes for each in node.all_input_nodes if each not in inside))
    results = [node for node in nodes if node in wanted or any(user not in inside for user in node.users)]
    inner = torch.fx.Graph()
    here: dict[Node, Node] = {}
    for node in inputs:
        here[node] = inner.placeholder(node.name)
        here[node].meta = dict(node.meta)
    for node in nodes:
        here[node] = inner.node_copy(node, here.__getitem__)
        here[node].meta = dict(node.meta)
    result = inner.output(tuple(here[node] for node in results))
    result.meta = {"example_value": tuple(node.meta["example_value"] for node in results), "stack_trace": ""}
    module = torch.fx.GraphModule(gm, inner)
    note_effects(module, Effects(frozenset(), effects_of(gm).random))
    return Stage(module, [node.name for node in inputs], [node.name for node in results])

"""Cut a graph into stages that run one after the other, each using results of earlier ones.

Needed for graphs that must stop and check a value before they go on (graph/deopt_safety.py), and for those that a
backend compiles in parts (backends/split_backward.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx

from torchdynamo.graph.generators import is_generator
from torchdynamo.graph.modules import graph_module
from torchdynamo.graph.mutation import Effects, effects_of, note_effects
from torchdynamo.graph.numpy_nodes import is_array
from torchdynamo.graph.torch_compat import is_layered

Node = torch.fx.Node
Switches = dict[tuple[Any, ...], Any]  # (setter, its leading arguments) -> the value that the graph has set
# Setter of process state -> the function that reads it.
GETTERS: dict[Any, Any] = {
    torch._C._set_grad_enabled: torch.is_grad_enabled,
    torch.set_autocast_enabled: torch.is_autocast_enabled,
    torch.set_autocast_dtype: torch.get_autocast_dtype,
    torch.set_autocast_cache_enabled: torch.is_autocast_cache_enabled,
}


class GraphStage(NamedTuple):
    """A part of a graph; inputs and results are names of nodes of the whole graph."""

    module: torch.fx.GraphModule
    inputs: list[str]
    results: list[str]


def can_be_cut(graph: torch.fx.Graph, cuts: Sequence[Node], may_cross: Callable[[object], bool] = is_array) -> bool:
    """Return whether a graph can be cut after these nodes: only tensors of fixed sizes, and what `may_cross`, do."""
    order = {node: at for at, node in enumerate(graph.nodes)}
    inputs = [node.meta.get("example_value") for node in graph.find_nodes(op="placeholder")]
    if not all(is_fixed(example) or is_array(example) or is_generator(example) for example in inputs):
        return False

    def crosses(example: object) -> bool:
        return is_fixed(example) or may_cross(example)

    carried = {
        node for cut in cuts for node in graph.nodes if node.op != "placeholder" and order[node] <= order[cut]
        for user in node.users if order[user] > order[cut]
    }  # fmt: skip
    return all(crosses(node.meta.get("example_value")) for node in carried)


def is_fixed(example: object) -> bool:
    """Return whether a value is a tensor of constant sizes that no torch.func transform has wrapped."""
    if not isinstance(example, torch.Tensor) or is_layered(example):
        return False
    return all(type(size) is int for size in example.shape)


def cut(gm: torch.fx.GraphModule, after: Sequence[str]) -> list[GraphStage]:
    """Return the stages of a finished graph, cut after the nodes of these names."""
    nodes = [node for node in gm.graph.nodes if node.op not in ("placeholder", "output")]
    (output,) = gm.graph.find_nodes(op="output")
    groups: list[list[Node]] = [[]]
    for node in nodes:
        groups[-1].append(node)
        if node.name in after:
            groups.append([])
    wanted = set(output.all_input_nodes)
    switched: Switches = {}
    return [stage(gm, group, wanted, switched) for group in groups if group]


def with_inputs(graph: torch.fx.Graph, nodes: Iterable[Node]) -> dict[Node, Node]:
    """Add an input for each of these nodes of another graph, which it stands for, and return it by node."""
    found = {}
    for node in nodes:
        found[node] = graph.placeholder(node.name)
        found[node].meta = dict(node.meta)
    return found


def stage(gm: torch.fx.GraphModule, nodes: list[Node], wanted: set[Node], switched: Switches) -> GraphStage:
    """Return these nodes as a graph of their own, which sets the process state that it expects and restores it.

    switched: the state that earlier stages have set; updated for the next stage.
    """
    inside = set(nodes)
    inputs = list(dict.fromkeys(each for node in nodes for each in node.all_input_nodes if each not in inside))
    results = [node for node in nodes if node in wanted or any(user not in inside for user in node.users)]
    inner = torch.fx.Graph()
    here = with_inputs(inner, inputs)
    switch(inner, {key: value for key, value in switched.items() if value != at_entry(key)})
    for node in nodes:
        here[node] = inner.node_copy(node, here.__getitem__)
        here[node].meta = dict(node.meta)
        if node.target in GETTERS:
            switched[(node.target, *node.args[:-1])] = node.args[-1]
    switch(inner, {key: at_entry(key) for key, value in switched.items() if value != at_entry(key)})
    result = inner.output(tuple(here[node] for node in results))
    result.meta = {"example_value": tuple(node.meta["example_value"] for node in results), "stack_trace": ""}
    module = graph_module(gm, inner)
    effects = effects_of(gm)
    written = frozenset(node.name for node in inputs if node.name in effects.mutated or is_written_to(node, effects))
    note_effects(module, effects._replace(mutated=written, as_captured=False))
    return GraphStage(module, [node.name for node in inputs], [node.name for node in results])


def switch(graph: torch.fx.Graph, switches: Switches) -> None:
    """Add nodes that set this state."""
    for key, value in switches.items():
        graph.call_function(key[0], (*key[1:], value)).meta = {"example_value": None, "stack_trace": ""}


def at_entry(key: tuple[Any, ...]) -> Any:
    """Return the value of some process state where the whole graph begins, which is where it is compiled."""
    return GETTERS[key[0]](*key[1:])


def is_written_to(node: Node, effects: Effects) -> bool:
    """Return whether a stage may write to an earlier stage's result."""
    example = node.meta["example_value"]
    if node.op == "placeholder" or not isinstance(example, torch.Tensor):
        return False
    if effects.overwritten is not None:
        return node.name in effects.overwritten
    return not example.is_inference() and example._version > 0

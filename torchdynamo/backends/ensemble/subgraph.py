"""Hold a graph that the ensemble chooses a compiler for, with what members ask about it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx
from torch.utils import _pytree as pytree

from torchdynamo.backends.preserve import mutated_positions
from torchdynamo.graph.modules import graph_module
from torchdynamo.graph.mutation import Effects, effects_of
from torchdynamo.graph.numbers import SYMBOLIC
from torchdynamo.graph.recording import address_of
from torchdynamo.graph.sizes import sizes_of

PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def memory_of(example: object) -> int | None:
    """Return what tells the memory of a value of the graph from other memory; None for what has none of its own."""
    return address_of(example) if isinstance(example, torch.Tensor) else None


def sources_of_lasting_results(graph: torch.fx.Graph, constants: Collection[torch.fx.Node]) -> set[torch.fx.Node]:
    """Return the nodes from which results are computed that are the same in all calls, if these inputs are constants.

    Numbers, such as sizes of an input, count as constants.
    """
    numbers = (int, float, bool, *SYMBOLIC)
    moving: set[torch.fx.Node] = set()
    for node in graph.nodes:
        is_input = node.op == "placeholder" and node not in constants
        if not isinstance(node.meta.get("example_value"), numbers) and (
            is_input or not moving.isdisjoint(node.all_input_nodes)
        ):
            moving.add(node)
    waiting = [node for node in graph.output_node().all_input_nodes if node not in moving]
    found: set[torch.fx.Node] = set()
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


class FrozenGraph(NamedTuple):
    """A copy of a graph whose parameters and buffers are attributes of its module, and no inputs any more."""

    module: torch.fx.GraphModule
    inputs: list[Any]
    """The examples of the inputs that are left, in the order of `Subgraph.moving`."""


class Subgraph:
    """A captured graph, the inputs of the call that it is compiled for, and the facts that members ask for."""

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        example_inputs: Sequence[Any],
        *,
        constants: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Describe a graph.

        example_inputs: the real tensors and numbers of a call. constants: members may make constants of the inputs
        that keep their memory from call to call. settings: options of single members, `{"inductor": {...}}`.
        """
        self.gm = gm
        self.example_inputs = list(example_inputs)
        self.constants = constants
        self.settings = dict(settings or {})

    @functools.cached_property
    def placeholders(self) -> list[torch.fx.Node]:
        return list(self.gm.graph.find_nodes(op="placeholder"))

    @functools.cached_property
    def nodes(self) -> list[torch.fx.Node]:
        """The operators of the graph."""
        return [node for node in self.gm.graph.nodes if node.op.startswith("call_")]

    @functools.cached_property
    def effects(self) -> Effects:
        return effects_of(self.gm)

    @functools.cached_property
    def is_symbolic(self) -> bool:
        """Return whether sizes or numbers of the graph are symbols."""
        return sizes_of(self.gm) is not None or any(
            isinstance(node.meta.get("example_value"), SYMBOLIC) for node in self.gm.graph.nodes
        )

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The example inputs that are tensors."""
        return [each for each in self.example_inputs if isinstance(each, torch.Tensor)]

    @functools.cached_property
    def wants_gradients(self) -> bool:
        """Return whether the call follows gradients: grad mode is on, and an input or a result requires one."""
        return torch.is_grad_enabled() and (
            any(each.requires_grad for each in self.tensors)
            or any(each.requires_grad for each in self.results if isinstance(each, torch.Tensor))
        )

    @functools.cached_property
    def results(self) -> list[Any]:
        """The fake tensors and constants that the graph returns, flat."""
        found = pytree.tree_leaves(self.gm.graph.output_node().args[0])
        return [each.meta.get("example_value") if isinstance(each, torch.fx.Node) else each for each in found]

    @functools.cached_property
    def examples(self) -> list[torch.Tensor]:
        """The fake tensors of all values of the graph, inputs among them."""
        values = [node.meta.get("example_value") for node in self.gm.graph.nodes]
        return [each for each in pytree.tree_leaves(values) if isinstance(each, torch.Tensor)]

    @functools.cached_property
    def static(self) -> list[int]:
        """The positions of the inputs that members may make constants of: parameters and buffers that nobody writes to,
        whose memory no result shares, and of which no result is computed without other inputs: such a result would be
        one tensor for all calls.
        """
        if not self.constants or self.wants_gradients:
            return []
        written = set(mutated_positions(self.gm))
        returned = {memory_of(each) for each in self.results}
        found = {
            node: position
            for position, node in enumerate(self.placeholders)
            if node.meta.get("static_input")
            and position not in written
            and type(self.example_inputs[position]) in PLAIN
            and memory_of(node.meta.get("example_value")) not in returned
        }
        lasting = sources_of_lasting_results(self.gm.graph, found)
        return [position for node, position in found.items() if node not in lasting]

    @functools.cached_property
    def moving(self) -> list[int]:
        """The positions of the inputs that are no constants."""
        static = set(self.static)
        return [position for position in range(len(self.placeholders)) if position not in static]

    def frozen(self) -> FrozenGraph:
        """Return a copy of the graph in which the static inputs are attributes: aliases that do not own the parameters.

        An alias shares the parameter's memory and follows writes to it; the parameter itself may die.
        """
        graph = copy.deepcopy(self.gm.graph)
        module = graph_module(self.gm, graph)
        module.meta = dict(self.gm.meta)
        inputs = list(graph.find_nodes(op="placeholder"))
        for position in self.static:
            name, placeholder = f"constant_{position}", inputs[position]
            module.register_buffer(name, self.example_inputs[position].detach())
            with graph.inserting_before(placeholder):
                constant = graph.get_attr(name)
            constant.meta = dict(placeholder.meta)
            placeholder.replace_all_uses_with(constant)
            graph.erase_node(placeholder)
        # attributes may not stand before inputs: some compilers count on inputs coming first
        first = next(node for node in graph.nodes if node.op != "placeholder")
        for placeholder in graph.find_nodes(op="placeholder"):
            first.prepend(placeholder)
        module.recompile()
        return FrozenGraph(module, [self.example_inputs[position] for position in self.moving])

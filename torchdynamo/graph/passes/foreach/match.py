"""Find updates of many tensors that are alike and have nothing to do with each other, and run them in step."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from torchdynamo.graph.node_places import place_of
from torchdynamo.graph.passes.attention.calls import example
from torchdynamo.graph.passes.attention.form import Miss
from torchdynamo.graph.passes.attention.in_place import memory_of
from torchdynamo.graph.passes.foreach.components import Component, components_of, program_of, rows_of
from torchdynamo.graph.passes.foreach.operators import SPELLINGS, UpdateStep, is_update, step_of
from torchdynamo.graph.passes.found import Found

Node = torch.fx.Node
FEWEST = 16
"""Fewest tensors that are updated in step."""


def rewrite_updates(graph: torch.fx.Graph) -> list[Found]:
    """Run updates that are alike in step, in place; return what became of each.

    An update is what is computed in one component and written to the memory of an input.
    """
    given = {memory_of(example(node)) for node in graph.find_nodes(op="placeholder") if is_tensor(node)}
    updates = [node for node in graph.nodes if is_update(node) and writes_to(node, given)]
    if len(updates) < FEWEST:
        return []
    found, left = [], dict[Node, Component]()
    for row, after in list(rows_of(graph)):
        groups: dict[Hashable, list[Component]] = defaultdict(list)
        for component in components_of(row):
            if any(writes_to(step.node, given) for step in component):
                groups[program_of(component)].append(component)
        for group in groups.values():
            if len(group) < FEWEST:
                left.update((step.node, component) for component in group for step in component)
                continue
            last = group[0][-1].node
            count = f"{len(group)} tensors in step, {len(group[0])} operators by torch._foreach_*"
            found.append(Found("updates", place_of(last), count))
            run_in_step(graph, group, after)
    kept = set(graph.nodes)
    missed: dict[Any, list[Node]] = defaultdict(list)
    for node in updates:
        if node in kept:
            missed[place_of(node)].append(node)
    for place, nodes in missed.items():
        if len({node.args[0] for node in nodes}) >= FEWEST:
            found += [Found("updates", place, reason(node, left.get(node)), missed=True) for node in nodes]
    return found


def is_tensor(node: Node) -> bool:
    """Return whether a node gives a tensor."""
    return isinstance(example(node), torch.Tensor)


def writes_to(node: Node, memories: set[int]) -> bool:
    """Return whether an update writes to one of these memories."""
    return SPELLINGS[node.target][1] and memory_of(example(node)) in memories


def reason(node: Node, component: Component | None) -> str:
    """Return why an update is left as it is written."""
    if component is not None and len({step.lists[0] for step in component if step.writes}) >= FEWEST:
        return "one needs another's result, or shares memory that is written to"
    try:
        step_of(node)
    except Miss as miss:
        return str(miss)
    return f"fewer than {FEWEST} in a row are alike"


def run_in_step(graph: torch.fx.Graph, group: Sequence[Component], after: Node) -> None:
    """Replace components of one program by operators on lists, before the node after their row."""
    now: dict[Node, Node] = {}
    with graph.inserting_before(after):
        for steps in zip(*group, strict=True):
            first = steps[0]
            lists = [listed(graph, steps, at, now) for at in range(len(first.lists))]
            if first.before is not None:
                lists[0] = items(graph, steps, called(graph, steps, first.before, lists))
            made = called(graph, steps, first.function, [*lists, *first.shared], first.named)
            results = lists[0] if first.writes else items(graph, steps, made)
            now.update(zip((step.node for step in steps), results, strict=True))
    for node, replacement in now.items():
        node.replace_all_uses_with(replacement)
    for component in group:
        for step in reversed(component):
            graph.erase_node(step.node)


def listed(graph: torch.fx.Graph, steps: Sequence[UpdateStep], at: int, now: Mapping[Node, Node]) -> list[Node]:
    """Return one argument of each of these steps."""
    given = [step.lists[at] for step in steps]
    if given[0] is None:
        return [noted(graph.call_function(torch.zeros_like, (step.lists[0],)), step) for step in steps]
    return [now.get(each, each) for each in given if each is not None]


def called(
    graph: torch.fx.Graph,
    steps: Sequence[UpdateStep],
    function: Callable[..., Any],
    args: Sequence[Any],
    named: Mapping[str, Any] | None = None,
) -> Node:
    """Add an operator on lists."""
    made = noted(graph.call_function(function, tuple(args), dict(named or {})), steps[0])
    made.meta["example_value"] = [step.result for step in steps]
    return made


def items(graph: torch.fx.Graph, steps: Sequence[UpdateStep], made: Node) -> list[Node]:
    """Add the tensors of a list that an operator gives."""
    return [noted(graph.call_function(operator.getitem, (made, at)), step) for at, step in enumerate(steps)]


def noted(node: Node, step: UpdateStep) -> Node:
    """Give a node the line and the example of a step, whose result is like its own."""
    node.meta = {"stack_trace": step.node.meta.get("stack_trace", ""), "example_value": step.result}
    return node

"""Group operators in a row into updates: those that read each other's results, or memory that one writes to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor

from torchdynamo.graph.passes.attention.calls import example
from torchdynamo.graph.passes.attention.form import Miss
from torchdynamo.graph.passes.attention.in_place import is_write, memory_of
from torchdynamo.graph.passes.foreach.operators import UpdateStep, is_number, is_update, step_of

Node = torch.fx.Node
Component = list[UpdateStep]


def rows_of(graph: torch.fx.Graph) -> Iterator[tuple[list[UpdateStep], Node]]:
    """Yield operators that follow each other in a graph, and the node after them.

    What lies between may compute numbers or make views of tensors from elsewhere: it may run before all of the row.
    """
    row: dict[Node, UpdateStep] = {}
    for node in graph.nodes:
        step = joined(node)
        if step is not None:
            row[node] = step
        elif node.op != "placeholder" and not (stays(node) and row.keys().isdisjoint(node.all_input_nodes)):
            if row:
                yield list(row.values()), node
            row = {}


def joined(node: Node) -> UpdateStep | None:
    """Return how a node is called for lists, or None.

    A tensor without dimensions that is computed for larger ones is no step: all of these would be one component.
    """
    if not is_update(node):
        return None
    if example(node).dim() == 0 and not is_write(node) and any(has_dimensions(user) for user in node.users):
        return None
    try:
        return step_of(node)
    except Miss:
        return None


def has_dimensions(node: Node) -> bool:
    """Return whether a node gives a tensor with dimensions."""
    found = example(node)
    return isinstance(found, torch.Tensor) and found.dim() > 0


def stays(node: Node) -> bool:
    """Return whether a node reads no contents of tensors: an operator on numbers, a constant, or a view."""
    if node.op == "get_attr":
        return True
    if not node.op.startswith("call_") or is_write(node):
        return False
    inputs, found = node.all_input_nodes, example(node)
    if is_number(node):
        return all(map(is_number, inputs))
    views = isinstance(found, FakeTensor) and bool(inputs) and isinstance(example(inputs[0]), torch.Tensor)
    return views and memory_of(found) == memory_of(example(inputs[0]))


def components_of(row: list[UpdateStep]) -> list[Component]:
    """Split operators in a row into components, in which they keep their order."""
    parents = {step.node: step.node for step in row}

    def root(node: Node) -> Node:
        while parents[node] is not node:
            parents[node] = node = parents[parents[node]]
        return node

    written = {memory_of(step.result) for step in row if step.writes}
    first_in: dict[int, Node] = {}
    for step in row:
        for each in step.tensors:
            if each in parents:
                parents[root(each)] = root(step.node)
        for memory in {memory_of(example(each)) for each in (step.node, *step.tensors)} & written:
            parents[root(first_in.setdefault(memory, step.node))] = root(step.node)
    found: dict[Node, Component] = defaultdict(list)
    for step in row:
        found[root(step.node)].append(step)
    return list(found.values())


def program_of(component: Component) -> Hashable:
    """Return what two components have in common if they may run in step: all but the contents and shapes of tensors."""
    names: dict[Any, int] = {}
    steps = []
    for step in component:
        lists = tuple(each and names.setdefault(each, len(names)) for each in step.lists)
        shared = tuple(map(identity, step.shared))
        named = tuple((name, identity(value)) for name, value in step.named.items())
        steps.append((step.function, step.before, names.setdefault(step.node, len(names)), lists, shared, named))
    return component[0].result.dtype, component[0].result.device, tuple(steps)


def identity(value: Any) -> Hashable:
    """Return what is the same for equal numbers and for the same tensor; numbers are equal if computed in one way."""
    if not isinstance(value, Node):
        return type(value), repr(value)
    if is_arithmetic(value):
        return value.target, tuple(map(identity, value.args))
    return value


def is_arithmetic(node: Node) -> bool:
    """Return whether a node is a function of Python on numbers, which gives the same for the same."""
    pure = getattr(node.target, "__module__", None) in ("_operator", "math", "builtins")
    return pure and is_number(node) and not node.kwargs and all(map(is_number, node.args))

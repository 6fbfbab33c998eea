"""How the results of a graph hang together by their gradients: read off the history that autograd gave the stand-ins.

A compiled graph has one backward for all of its results, where eager has a path from each result to the inputs it came
from. Whoever calls that backward for some of the results has to know which inputs eager would have reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

from torchdynamo.graph.mutation import mutated_inputs


class History:
    """Of the results of one graph: the steps of autograd back to the graph's inputs, each looked at once."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        self.origins: dict[Any, int] = {}  # where a way ends: a leaf, or the last step before the graph
        self.inputs: dict[Any, int] = {}  # by step: the inputs it leads to, as bits
        self.way: dict[Any, int] = {}  # by step: the first of the results that it is shared with
        self.reached: dict[int, frozenset[int]] = {}  # by the place of a result with a gradient: places of inputs
        self.merged: dict[int, int] = {}  # ways that meet others
        for at, node in enumerate(gm.graph.find_nodes(op="placeholder")):
            example = with_gradient(node)
            if example is not None:
                self.origins.setdefault(id(example) if example.is_leaf else example.grad_fn, at)
        for at, result in enumerate(results_of(gm)):
            example = with_gradient(result)
            if example is not None:
                bits = self.walk(example.grad_fn, at) if example.grad_fn is not None else self.bit(id(example))
                self.reached[at] = frozenset(place for place in range(bits.bit_length()) if bits >> place & 1)

    def bit(self, origin: Any) -> int:
        """The input that begins here, as a bit."""
        at = self.origins.get(origin)
        return 0 if at is None else 1 << at

    def walk(self, last: Any, result: int) -> int:
        """The inputs that a step leads to. A step is done when those before it are."""
        todo = [last]
        while todo:
            step = todo[-1]
            leaf = getattr(step, "variable", None)  # of the step that adds to a leaf's gradient
            ends = self.bit(step if leaf is None else id(leaf))
            if step in self.inputs:
                if step in self.way:
                    self.meet(self.way[step], result)
                todo.pop()
            elif ends or leaf is not None:
                self.inputs[step] = ends
            elif step in self.way:
                before = [self.inputs[each] for each, _ in step.next_functions if each is not None]
                self.inputs[step] = _union(before)
                todo.pop()
            else:
                self.way[step] = result
                todo += [each for each, _ in step.next_functions if each is not None]
        return self.inputs[last]

    def meet(self, way: int, other: int) -> None:
        """Two ways have a step in common."""
        first, second = self.first(way), self.first(other)
        if first != second:
            self.merged[max(first, second)] = min(first, second)

    def first(self, way: int) -> int:
        """The first of all the results that this one shares steps with."""
        while way in self.merged:
            way = self.merged[way]
        return way

    def strand(self, step: Any) -> int | None:
        """Which way a step is on; results that share steps have one way."""
        way = self.way.get(step)
        return None if way is None else self.first(way)


def _union(bits: Sequence[int]) -> int:
    every = 0
    for each in bits:
        every |= each
    return every


def with_gradient(node: torch.fx.Node) -> torch.Tensor | None:
    """The node's stand-in, if it has a gradient."""
    example = node.meta.get("example_value")
    return example if isinstance(example, torch.Tensor) and example.requires_grad else None


def results_of(gm: torch.fx.GraphModule) -> Sequence[torch.fx.Node]:
    """The results whose history tells what they were computed from: not that of inputs that were written to."""
    (output,) = gm.graph.find_nodes(op="output")
    results, written = output.args[0], mutated_inputs(gm)
    if any(node.name in written and with_gradient(node) is not None for node in gm.graph.find_nodes(op="placeholder")):
        return ()
    if not isinstance(results, (tuple, list)) or not all(isinstance(node, torch.fx.Node) for node in results):
        return ()
    return results


def strands(gm: torch.fx.GraphModule) -> dict[torch.fx.Node, int]:
    """Which way back an operation is on, where there are several that have nothing in common but inputs.

    Eager can go one of them after the other, and free each as it goes.
    """
    if sum(with_gradient(node) is not None for node in results_of(gm)) < 2:
        return {}
    history = History(gm)
    nodes: dict[torch.fx.Node, int] = {}
    for node in gm.graph.nodes:
        for example in pytree.tree_leaves(node.meta.get("example_value")) if node.op.startswith("call_") else ():
            way = history.strand(example.grad_fn) if isinstance(example, torch.Tensor) else None
            if way is not None:
                nodes[node] = way
    return nodes if len(set(nodes.values())) > 1 else {}

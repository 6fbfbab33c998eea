"""How gradients connect the results of a graph: read off the history that autograd gave the fake tensors.

A compiled graph has one backward for all of its results, where eager has a path from each result to the inputs it came
from. Whoever calls that backward for some of the results has to know which inputs eager would have reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
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
        self.order: list[Any] = []  # steps within the graph, each after those that it leads to
        self.last: dict[Any, int] = {}  # by step: the results that it gives, as bits
        self.reached: dict[int, frozenset[int]] = {}  # by the place of a result with a gradient: places of inputs
        for at, node in enumerate(gm.graph.find_nodes(op="placeholder")):
            example = with_gradient(node)
            if example is not None:
                self.origins.setdefault(id(example) if example.is_leaf else example.grad_fn, at)
        for at, result in enumerate(results_of(gm)):
            example = with_gradient(result)
            if example is not None:
                bits = self.walk(example.grad_fn, at) if example.grad_fn is not None else self.bit(id(example))
                self.reached[at] = frozenset(places_in(bits))

    def bit(self, origin: Any) -> int:
        """Return the input that begins here, as a bit."""
        at = self.origins.get(origin)
        return 0 if at is None else 1 << at

    def walk(self, last: Any, result: int) -> int:
        """Return the inputs that a step leads to. A step is done when those before it are."""
        todo, begun = [last], set[Any]()
        self.last[last] = self.last.get(last, 0) | 1 << result
        while todo:
            step = todo[-1]
            leaf = getattr(step, "variable", None)  # of the step that adds to a leaf's gradient
            ends = self.bit(step if leaf is None else id(leaf))
            if step in self.inputs:
                todo.pop()
            elif ends or leaf is not None:
                self.inputs[step] = ends
            elif step in begun:
                before = [self.inputs[each] for each, _ in step.next_functions if each is not None]
                self.inputs[step] = _union(before)
                self.order.append(step)
                todo.pop()
            else:
                begun.add(step)
                todo += [each for each, _ in step.next_functions if each is not None]
        return self.inputs[last]

    def ways(self) -> dict[Any, int]:
        """Return, by step, which way back it is on: the first of the results on it.

        Results that share steps are on one way. But a result that others lead to which share nothing with each other (a
        sum of two losses) does not make one way of theirs: the steps that only such results have are on a way of their
        own.
        """
        shared = {step: self.last.get(step, 0) for step in self.order}
        for step in reversed(self.order):
            for before, _ in step.next_functions:
                if before in shared:
                    shared[before] |= shared[step]
        way_of = ways_of(set(shared.values()))
        return {step: way_of[results] for step, results in shared.items()}


def ways_of(groups: AbstractSet[int]) -> dict[int, int]:
    """Return, by group of results that have steps in common (as bits), the first of the results that are on one way.

    Joins, results that share steps with two others that share none, come last, by the steps that are theirs alone.
    """
    sharing: dict[int, int] = {}
    for group in groups:
        for result in places_in(group):
            sharing[result] = sharing.get(result, 0) | group
    joins = _union(
        1 << one for one, others in sharing.items() if any(others & ~sharing[each] for each in places_in(others))
    )
    if joins == _union(groups):  # a ring of results
        return dict.fromkeys(groups, min(sharing))
    found = {
        group: next(places_in(sharing[next(places_in(group & ~joins))] & ~joins)) for group in groups if group & ~joins
    }
    left = groups - found.keys()
    return {**found, **ways_of(left)} if left else found


def places_in(bits: int) -> Iterator[int]:
    """Yield the places of the bits that are set, from the first on."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _union(bits: Iterable[int]) -> int:
    every = 0
    for each in bits:
        every |= each
    return every


def with_gradient(node: torch.fx.Node) -> torch.Tensor | None:
    """Return the node's fake tensor, if it has a gradient."""
    example = node.meta.get("example_value")
    return example if isinstance(example, torch.Tensor) and example.requires_grad else None


def results_of(gm: torch.fx.GraphModule) -> Sequence[torch.fx.Node]:
    """Return the results whose history tells what they were computed from; none where an input got another history.

    A leaf that is written to, by an optimizer's step, stays a leaf.
    """
    (output,) = gm.graph.find_nodes(op="output")
    results, written = output.args[0], mutated_inputs(gm)
    inputs = [(node.name, with_gradient(node)) for node in gm.graph.find_nodes(op="placeholder")]
    if any(name in written and example is not None and not example.is_leaf for name, example in inputs):
        return ()
    if not isinstance(results, (tuple, list)) or not all(isinstance(node, torch.fx.Node) for node in results):
        return ()
    return results


def strands(gm: torch.fx.GraphModule) -> dict[torch.fx.Node, int]:
    """Return which way back an operation is on, where there are several: see `History.ways`.

    Eager can go one of them after the other, and free each as it goes.
    """
    if sum(with_gradient(node) is not None for node in results_of(gm)) < 2:
        return {}
    ways = History(gm).ways()
    nodes: dict[torch.fx.Node, int] = {}
    for node in gm.graph.nodes:
        for example in pytree.tree_leaves(node.meta.get("example_value")) if node.op.startswith("call_") else ():
            way = ways.get(example.grad_fn) if isinstance(example, torch.Tensor) else None
            if way is not None:
                nodes[node] = way
    return nodes if len(set(nodes.values())) > 1 else {}

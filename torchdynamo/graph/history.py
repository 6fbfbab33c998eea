"""Find out which inputs each result of a graph depends on by gradients, from the history of the fake tensors.

A compiled graph has one backward for all of its results, where eager has a path from each result to the inputs it came
from. A caller that runs that backward for some results must know which inputs eager would have reached.
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
    """The autograd history from one graph's results back to its inputs. Each autograd node is visited once."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        self.origins: dict[Any, int] = {}  # leaf's id, or autograd node before the graph -> position of the input
        self.inputs: dict[Any, int] = {}  # autograd node -> inputs it leads to, as bits
        self.order: list[Any] = []  # autograd nodes within the graph, each after those that it leads to
        self.last: dict[Any, int] = {}  # autograd node -> results that it produces, as bits
        self.reached: dict[int, frozenset[int]] = {}  # position of a differentiable result -> positions of inputs
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
        """Return the bit of the input that begins at a leaf or autograd node; 0 if there is none."""
        at = self.origins.get(origin)
        return 0 if at is None else 1 << at

    def walk(self, last: Any, result: int) -> int:
        """Return, as bits, the inputs that an autograd node leads to, visiting the nodes before it first."""
        todo, begun = [last], set[Any]()
        self.last[last] = self.last.get(last, 0) | 1 << result
        while todo:
            step = todo[-1]
            leaf = getattr(step, "variable", None)  # only the node that accumulates a leaf's gradient has it
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
        """Return, for each autograd node, its strand: a part of the backward that can run by itself, named by a result.

        Results that share nodes are on one strand. A result that joins strands which share nothing with each other (a
        sum of two losses) does not merge them: the nodes that only such results have are on a strand of their own.
        """
        shared = {step: self.last.get(step, 0) for step in self.order}
        for step in reversed(self.order):
            for before, _ in step.next_functions:
                if before in shared:
                    shared[before] |= shared[step]
        way_of = ways_of(set(shared.values()))
        return {step: way_of[results] for step, results in shared.items()}


def ways_of(groups: AbstractSet[int]) -> dict[int, int]:
    """Return the strand of each group of results that have autograd nodes in common (as bits).

    Joins, which are results that share nodes with two others that share none, come last, by the nodes that only they
    have.
    """
    sharing: dict[int, int] = {}
    for group in groups:
        for result in places_in(group):
            sharing[result] = sharing.get(result, 0) | group
    joins = _union(
        1 << one for one, others in sharing.items() if any(others & ~sharing[each] for each in places_in(others))
    )
    if joins == _union(groups):  # every result joins others: all are one strand
        return dict.fromkeys(groups, min(sharing))
    found = {
        group: next(places_in(sharing[next(places_in(group & ~joins))] & ~joins)) for group in groups if group & ~joins
    }
    left = groups - found.keys()
    return {**found, **ways_of(left)} if left else found


def places_in(bits: int) -> Iterator[int]:
    """Yield the positions of the bits that are set, in ascending order."""
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
    """Return the node's fake tensor if it requires a gradient, else None."""
    example = node.meta.get("example_value")
    return example if isinstance(example, torch.Tensor) and example.requires_grad else None


def results_of(gm: torch.fx.GraphModule) -> Sequence[torch.fx.Node]:
    """Return the results whose history shows what they were computed from; none if an input got another history.

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
    """Return the strand of each node, if there is more than one (see `History.ways`).

    Eager can run the strands of a backward one after the other, and frees each as it goes.
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

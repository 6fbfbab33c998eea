"""Find the inputs of a compiled graph for a second derivative, also those that the program has let go of.

A tensor that one graph hands to the next is mostly dead when the backward runs. Autograd still holds the edge to the
node that has made it. The tensor is found again where that is a leaf, where the backward has saved it, or where it is a
result of a compiled graph: that graph then runs again, in eager and with a history, on inputs that are found in the
same way. Nothing is kept in the forward for this.

Where an input is not found, the leaves that it was computed from still are, so that what cannot be differentiated
raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch

from torchdynamo.graph import compiled_nodes
from torchdynamo.graph.compiled_calls import INPUTS
from torchdynamo.graph.compiled_parts import input_edges

RUNS = "_torchdynamo_runs"  # attribute of patched classes of autograd nodes: what runs their graph
AGAIN = "_torchdynamo_again"  # attribute of autograd nodes: their call, run again for a later node
Edge: TypeAlias = tuple[Any, int]  # an autograd node, or None, and the number of its result


class Runs(Protocol):
    """Runs a captured graph in eager."""

    @property
    def repeatable(self) -> bool:
        """True if the graph may run again."""

    def run_again(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the graph's results, with a history."""


class RepeatedCall(NamedTuple):
    """A call of a graph that ran again, with tensors that are all there."""

    inputs: Sequence[Any]
    results: Sequence[Any]


def live_inputs(node: Any) -> list[Any] | None:
    """Return the inputs of a node's call, numbers included; None if a tensor has died or was modified since."""
    inputs = _unmodified(node)
    return None if inputs is None or _dead(node, inputs) else inputs


def found_inputs(node: Any) -> list[Any] | None:
    """Return the inputs of a node's call, dead ones found again; None if that is impossible or one was modified."""
    again: RepeatedCall | None = getattr(node, AGAIN, None)
    if again is not None:
        delattr(node, AGAIN)  # made for this backward
        return list(again.inputs)
    tried: dict[Any, RepeatedCall | None] = {}
    waiting = [node]  # a stack: chains of graphs are longer than Python's
    while True:
        last = waiting[-1]
        if last in tried:
            waiting.pop()
            continue
        before = [step for step in _makers(last) if step not in tried and getattr(step, AGAIN, None) is None]
        if before:
            waiting += before
            continue
        waiting.pop()
        inputs = _inputs(last)
        if last is node:
            return inputs
        runs = getattr(compiled_nodes.compiled_class(last), RUNS)
        tried[last] = None if inputs is None else RepeatedCall(inputs, runs.run_again(inputs))
        if tried[last] is not None:
            setattr(last, AGAIN, tried[last])


def connections(node: Any) -> list[torch.Tensor]:
    """Return tensors that connect a derivative to what the inputs of a node's call were computed from: live inputs and,
    where one has died, leaves and live inputs of earlier graphs.
    """
    known = getattr(node, INPUTS, ())
    found = {id(each): each for each in _live_with_gradients(node)}
    if any(version is not None and ref() is None for ref, version in known):
        seen = {node}
        waiting = [node]
        while waiting:
            each = waiting.pop()
            found.update((id(tensor), tensor) for tensor in _live_with_gradients(each))
            if _is_of_leaf(each):
                found[id(each.variable)] = each.variable
            for step, _ in each.next_functions:
                if step is not None and step not in seen:
                    seen.add(step)
                    waiting.append(step)
    return list(found.values())


def _live_with_gradients(node: Any) -> Iterator[torch.Tensor]:
    for ref, version in getattr(node, INPUTS, ()):
        tensor = None if version is None else ref()
        if tensor is not None and tensor.requires_grad:
            yield tensor


def _unmodified(node: Any) -> list[Any] | None:
    """Return the inputs of a node's call, None for dead ones; None if they are not known or one was modified."""
    known = getattr(node, INPUTS, None)
    if known is None:
        return None
    inputs = [given if version is None else given() for given, version in known]
    for each, (_, version) in zip(inputs, known, strict=True):
        if version is not None and each is not None and each._version != version:
            return None
    return inputs


def _dead(node: Any, inputs: Sequence[Any]) -> list[int]:
    """Return the positions of dead tensors among the inputs of a node's call."""
    known = getattr(node, INPUTS)
    return [at for at, each in enumerate(inputs) if each is None and known[at][1] is not None]


def _makers(node: Any) -> list[Any]:
    """Return the nodes of graphs that are to run again for the dead inputs of a node's call."""
    inputs = _unmodified(node)
    dead = [] if inputs is None else _dead(node, inputs)
    if not dead:
        return []
    edges = input_edges(node, [version is not None for _, version in getattr(node, INPUTS)])
    steps = [step for at in dead if (step := edges.get(at, (None, 0))[0]) is not None]
    return [step for step in dict.fromkeys(steps) if _can_run_again(step)]


def _can_run_again(step: Any) -> bool:
    cls = getattr(step, "_forward_cls", None)
    runs: Runs | None = getattr(cls, RUNS, None)
    return runs is not None and runs.repeatable and compiled_nodes.returns_as_captured(cls, len(step._input_metadata))


def _inputs(node: Any) -> list[Any] | None:
    """Return the inputs of a node's call, the graphs before it having run again; None if one is not found."""
    inputs = _unmodified(node)
    if inputs is None:
        return None
    known = getattr(node, INPUTS)
    dead = _dead(node, inputs)
    if not dead:
        return inputs
    edges = input_edges(node, [version is not None for _, version in known])
    saved = {(each.grad_fn, each.output_nr): each for each in compiled_nodes.saved_without_hooks(node)}
    for at in dead:
        edge = edges.get(at, (None, 0))
        found = saved.get(edge) if edge[0] is not None else None
        inputs[at] = _result(edge, known[at][1]) if found is None else found
        if inputs[at] is None:
            return None
    return inputs


def _is_of_leaf(step: Any) -> bool:
    """Return whether a node stands for a leaf, which it holds."""
    return type(step).__name__ == "AccumulateGrad"


def _result(edge: Edge, version: int) -> Any:
    """Return the leaf at an edge, or the result if the graph ran again; None if it is another after a write."""
    if _is_of_leaf(edge[0]):
        return edge[0].variable if edge[0].variable._version == version else None
    again: RepeatedCall | None = getattr(edge[0], AGAIN, None)
    return None if again is None or version != 0 else again.results[edge[1]]

"""Find attention in a graph and replace it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor

from torchdynamo.graph.node_places import place_of
from torchdynamo.graph.passes.attention.calls import example, is_float, read
from torchdynamo.graph.passes.attention.emit import emit
from torchdynamo.graph.passes.attention.form import Attention, Bias, Fill, Miss
from torchdynamo.graph.passes.attention.in_place import is_write, out_of_place
from torchdynamo.graph.passes.attention.lower import lowered
from torchdynamo.graph.passes.attention.masks import Evaluator
from torchdynamo.graph.passes.attention.products import NAMES, sizes
from torchdynamo.graph.passes.attention.scores import climb
from torchdynamo.graph.passes.attention.weights import Softmax, empties, follow, softmaxes
from torchdynamo.graph.passes.found import Found
from torchdynamo.graph.torch_compat import CLOSERS, MODE_CHANGES, OPENERS, is_layered

Node = torch.fx.Node
NEAR = 24
"""Nodes between a softmax and the products, at most, for it to be reported as attention that is left as written."""


class AttentionOutcome(NamedTuple):
    """Attention found in a graph, rewritten or not. proven_by: inputs whose contents were taken for granted."""

    found: list[Found]
    proven_by: frozenset[Node]


def rewrite(graph: torch.fx.Graph, evaluator: Evaluator, *, random: bool) -> AttentionOutcome:
    """Replace attention in a graph by `scaled_dot_product_attention`, in place.

    random: dropout may draw other numbers than as it is written.
    """
    outcome, proven = list[Found](), frozenset[Node]()
    if not any(True for _ in softmaxes(graph)):
        return AttentionOutcome(outcome, proven)
    out_of_place(graph)
    for node, softmax in softmaxes(graph):
        if not is_between_products(node, softmax.scores):
            continue
        before = set(graph.nodes)
        try:
            attention = attention_at(graph, node, softmax, evaluator)
            if attention.dropout and not random:
                raise Miss("dropout is to draw eager's random numbers")
            arguments = lowered(
                attention.steps,
                sizes(attention.scores)[-2:],
                evaluator,
                emptied=attention.emptied,
                train=example(attention.result).requires_grad,
            )
            emit(attention, arguments, graph, evaluator.overwritten)
        except Miss as miss:
            clean(graph, set(graph.nodes) - before)
            place = place_of(miss.node or node) or place_of(node)
            outcome.append(Found("attention", place, str(miss), missed=True))
            continue
        clean(graph, {*attention.inner, attention.result})
        proven |= arguments.proven_by
        outcome.append(Found("attention", place_of(attention.result), arguments.described()))
    return AttentionOutcome(outcome, proven)


def attention_at(graph: torch.fx.Graph, node: Node, softmax: Softmax, evaluator: Evaluator) -> Attention:
    """Return the attention whose softmax a node is. Raises Miss."""
    if is_layered(example(node)):
        raise Miss("it is inside of a torch.func transform", node)
    if not softmax.is_last:
        raise Miss("the softmax is over another dimension than the last", node)
    scores, first, steps, way = climb(softmax.scores, evaluator, frozenset(softmax.nodes))
    weights = follow(node)
    result = weights.nodes[-1]
    operands = (first.left.node, first.right.node, weights.product.right.node)
    masks = [each.mask if isinstance(each, Fill) else each.tensor for each in steps if isinstance(each, (Fill, Bias))]
    if not all(isinstance(example(each), FakeTensor) for each in (node, *operands, *masks)):
        raise Miss("it is computed with a subclass of Tensor", node)
    emptied = empties(weights, [each for each in steps if isinstance(each, Fill)])
    inner = (*way, *softmax.nodes, *weights.nodes)
    check_between(graph, scores, result, inner)
    last = weights.nodes[-2] if len(weights.nodes) > 1 else node
    return Attention(first, steps, weights.product, scores, node, last, result, weights.dropout, emptied, inner)


def check_between(graph: torch.fx.Graph, first: Node, last: Node, inner: Collection[Node]) -> None:
    """Raise Miss if something happens between the products that what is moved there could notice."""
    node = first
    while node is not last:
        node = node.next
        if node.target in MODE_CHANGES or node.target in OPENERS or node.target in CLOSERS:
            raise Miss("autocast or grad mode changes on the way", node)
        if node not in inner and is_write(node):
            raise Miss("memory is written to on the way", node)


def clean(graph: torch.fx.Graph, nodes: Collection[Node]) -> None:
    """Erase those of the nodes that nobody uses, the last first."""
    for node in reversed(list(graph.nodes)):
        if node in nodes and not node.users:
            graph.erase_node(node)


def is_between_products(node: Node, scores: Node) -> bool:
    """Return whether a softmax is near enough to products before and after it that it looks like attention."""
    return any(map(is_product, nearby(scores, up=True))) and any(map(is_product, nearby(node, up=False)))


def is_product(node: Node) -> bool:
    """Return whether a node is a product of matrices."""
    call = read(node)
    return call is not None and call.name in NAMES


def nearby(node: Node, *, up: bool) -> Iterator[Node]:
    """Yield nodes that a node is computed from, or that are computed from it, the nearest first, up to products."""
    waiting: list[Any] = [node]
    seen = {node}
    while waiting and len(seen) <= NEAR:
        each = waiting.pop(0)
        yield each
        if is_product(each):
            continue
        for near in each.all_input_nodes if up else each.users:
            if near not in seen and is_float(near):
                seen.add(near)
                waiting.append(near)

"""Find softmaxes, in the operator or written by hand, and follow their weights down to the second product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch.fx

from torchdynamo.graph.passes.attention.calls import NamedCall, example, is_last, read
from torchdynamo.graph.passes.attention.form import Fill, Miss, Product
from torchdynamo.graph.passes.attention.products import NAMES, mixed, same, sizes

Node = torch.fx.Node


class Softmax(NamedTuple):
    """A softmax: what it is taken of, over what, and the nodes that it is made of, the result last."""

    scores: Node
    dim: object
    nodes: tuple[Node, ...]

    @property
    def is_last(self) -> bool:
        """Return whether it is over the last dimension."""
        return is_last(self.dim, example(self.scores).dim())


def softmax_at(node: Node) -> Softmax | None:
    """Return the softmax whose result a node is; None if it is none."""
    call = read(node)
    if call is None:
        return None
    if call.name == "softmax":
        return Softmax(call["input"], call["dim"], (node,))
    if call.name == "div":
        return divided(call, node)
    return exponential(call, node) if call.name == "exp" else None


def divided(call: NamedCall, node: Node) -> Softmax | None:
    """Return the softmax that is exp(x - max(x)) over its sum."""
    top, bottom = read(call["input"]), read(call["other"])
    if top is None or bottom is None or (top.name, bottom.name) != ("exp", "sum"):
        return None
    exp, total, shifted = call["input"], call["other"], read(top["input"])
    if bottom["input"] is not exp or not bottom["keepdim"] or shifted is None or shifted.name != "sub":
        return None
    scores, most = shifted["input"], shifted["other"]
    nodes = (*maximum(most, scores, bottom["dim"]), top["input"], exp, total, node)
    if len(nodes) == 4 or exp.users.keys() != {total, node} or len(top["input"].users) != 1 or len(total.users) != 1:
        return None
    return Softmax(scores, bottom["dim"], nodes)


def maximum(node: Node, scores: Node, dim: object) -> tuple[Node, ...]:
    """Return the nodes of a maximum of the scores over a dimension that it keeps; empty if it is none."""
    call = read(node)
    nodes: tuple[Node, ...] = (node,)
    while call is not None and call.name in ("detach", "getitem", "attribute") and len(node.users) == 1:
        if call.name != "detach" and call["index"] != 0 and call["name"] != "values":
            return ()
        node = call["input"]
        call, nodes = read(node), (node, *nodes)
    if call is None or call.name not in ("max", "amax") or len(node.users) != 1:
        return ()
    return nodes if call["input"] is scores and call["dim"] == dim and call["keepdim"] else ()


def exponential(call: NamedCall, node: Node) -> Softmax | None:
    """Return the softmax that is the exponential of a log-softmax, or of x - logsumexp(x)."""
    inner = read(call["input"])
    if inner is None or len(call["input"].users) != 1:
        return None
    if inner.name == "log_softmax":
        return Softmax(inner["input"], inner["dim"], (call["input"], node))
    total = read(inner["other"]) if inner.name == "sub" else None
    if total is None or total.name != "logsumexp" or not total["keepdim"] or len(inner["other"].users) != 1:
        return None
    if total["input"] is not inner["input"]:
        return None
    return Softmax(inner["input"], total["dim"], (inner["other"], call["input"], node))


class Weights(NamedTuple):
    """Use of attention's weights: the second product, and the operations between softmax and it."""

    product: Product
    nodes: list[Node]  # after the softmax; the product last
    dropout: float
    emptied: list[Node | None]  # masks that set weights to zero; None for one that replaces NaN


def follow(softmax: Node) -> Weights:
    """Follow weights down to the second product. Raises Miss."""
    node, nodes, dropout, emptied = softmax, list[Node](), 0.0, list[Node | None]()
    while True:
        if len(node.users) != 1:
            raise Miss("the weights are used a second time, or returned", node)
        (user,) = node.users
        call = read(user)
        nodes.append(user)
        if call is None:
            raise Miss("the weights are returned, or go to an operation that is not known here", user)
        if call.name in NAMES and call.name != "baddbmm":
            return Weights(mixed(call, user, node), nodes, dropout, emptied)
        if call.name == "dropout":
            p = call["p"] if call["p"] is not None else 0.5
            if call["inplace"] or type(p) not in (int, float) or dropout:
                raise Miss("a dropout of another kind", user)
            dropout = float(p) if call["training"] is not False else 0.0
        elif call.name == "masked_fill" and call["value"] == 0 and call["input"] is node:
            emptied.append(call["mask"])
        elif call.name == "nan_to_num" and call["nan"] in (None, 0):
            emptied.append(None)
        elif call.name not in ("cast", "same", "reshape") or not same(sizes(user)[-2:], sizes(node)[-2:]):
            raise Miss(f"`{call.name}` is applied to the weights", user)
        node = user


def empties(weights: Weights, fills: list[Fill]) -> str:
    """Return what makes weights of rows without keys zero: "nan" where NaN is replaced, "mask", or "" for nothing.

    Raises Miss for a mask that is not the only one of the scores.
    """
    masks = {each.mask for each in fills if not each.keeps}
    for mask in weights.emptied:
        if mask is not None and (mask not in masks or len(fills) != 1):
            raise Miss("the weights are masked by another mask than the scores", mask)
    if not weights.emptied:
        return ""
    return "nan" if None in weights.emptied else "mask"


def softmaxes(graph: torch.fx.Graph) -> Iterator[tuple[Node, Softmax]]:
    """Yield each node that is the result of a softmax."""
    for node in list(graph.nodes):
        found = softmax_at(node)
        if found is not None and isinstance(example(found.scores), torch.Tensor):
            yield node, found

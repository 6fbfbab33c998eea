"""Give writes to tensors of a graph's own the form without: `scores /= 8` becomes `scores / 8`, read from then on."""

from __future__ import annotations

import operator
from collections import defaultdict
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

from torchdynamo.graph.passes.attention.calls import IN_PLACE, example, read
from torchdynamo.graph.recording import address_of

Node = torch.fx.Node
GIVE_THEIR_INPUT = frozenset({"dropout", "cast", "same", "expand"})
NO_WRITES = frozenset({operator.and_, operator.or_, operator.not_, operator.is_})  # named after words of Python
WRITES = frozenset({operator.setitem, *(each for each in IN_PLACE if not isinstance(each, str))})


def out_of_place(graph: torch.fx.Graph) -> None:
    """Rewrite writes to memory that only the written tensor has, and erase operations that gave their input."""
    for node in reversed(list(graph.nodes)):
        call = read(node)
        unused = call is not None and call.name in GIVE_THEIR_INPUT and not node.users and not call["inplace"]
        if call is not None and unused and example(node) is example(call["input"]):
            graph.erase_node(node)
    writes = [node for node in graph.nodes if node.op.startswith("call_") and node.target in IN_PLACE]
    if not writes:
        return
    order = {node: index for index, node in enumerate(graph.nodes)}
    owners: dict[Any, set[Node]] = defaultdict(set)
    for node in graph.nodes:
        if node.op != "output":
            for each in pytree.tree_leaves(example(node)):
                if isinstance(each, torch.Tensor):
                    owners[memory_of(each)].add(node)
    originals = {node: node.args[0] for node in writes}
    for node in writes:
        written = node.args[0]
        root = originals[node]
        if not isinstance(written, Node) or not isinstance(root, Node) or not root.op.startswith("call_"):
            continue
        sharing = owners[memory_of(example(root))] - {root}
        if not all(originals.get(each) is root for each in sharing) or not keeps_dtype(node):
            continue
        written.replace_all_uses_with(node, delete_user_cb=lambda user, at=order[node]: order[user] > at)  # type: ignore[misc]
        node.target = IN_PLACE[node.target]


def memory_of(tensor: torch.Tensor) -> int:
    """Return an identity of a tensor's memory."""
    address = address_of(tensor)
    return id(tensor) if address is None else address


def keeps_dtype(node: Node) -> bool:
    """Return whether an operation gives the dtype of its first input also where it does not write to it."""
    first = example(node.args[0])
    others = [example(each) for each in node.args[1:]]
    return all(
        torch.result_type(first, each) == first.dtype
        for each in others
        if isinstance(each, (torch.Tensor, int, float)) and getattr(each, "dtype", None) != torch.bool
    )


def is_write(node: Node) -> bool:
    """Return whether a node may write to memory that others read."""
    if not node.op.startswith("call_"):
        return False
    if isinstance(node.target, str):
        return node.target.endswith("_") and not node.target.endswith("__")
    schema = getattr(node.target, "_schema", None)
    return (
        node.target in WRITES
        or "out" in node.kwargs
        or node.kwargs.get("inplace") is True
        or (node.target not in NO_WRITES and getattr(node.target, "__name__", "").endswith("_"))
        or isinstance(node.target, torch._ops.HigherOrderOperator)
        or bool(schema is not None and schema.is_mutable)
    )

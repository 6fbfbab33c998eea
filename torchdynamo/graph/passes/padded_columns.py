"""Pad products with constant weights whose number of columns is odd, since kernels for aligned sizes are faster.

The padded weight is computed once, where constants are folded. The result is copied without the padding, by itself or
by what reads it, and so is laid out as it was.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.nn import functional as F

from torchdynamo.graph.node_places import place_of
from torchdynamo.graph.passes.attention.calls import example, read
from torchdynamo.graph.passes.attention.writer import NodeWriter
from torchdynamo.graph.passes.found import Found

Node = torch.fx.Node
MULTIPLE = 8
FEWEST = 512
"""Fewest columns that are padded: below, the copy of the result takes as long as the product."""
PURE = frozenset({"transpose", "permute", "cast", "detach", "same"})
TRANSPOSED = ("t", torch.t)
"""Calls that compute a constant of a constant."""


def pad_columns(graph: torch.fx.Graph) -> list[Found]:
    """Pad the weights of products that are attributes of the module, in place; return where."""
    found = []
    for node in list(graph.nodes):
        call = read(node)
        if call is None or call.name not in ("linear", "matmul") or not gains(node):
            continue
        by_rows = call.name == "linear"
        weight, bias = call["weight" if by_rows else "other"], call["bias"]
        if is_constant(weight) and example(weight).dim() == 2 and (bias is None or is_constant(bias)):
            found.append(padded(graph, node, weight, bias, by_rows))
    return found


def gains(node: Node) -> bool:
    """Return whether a product is faster with padded columns, copied or not."""
    made = example(node)
    if not isinstance(made, torch.Tensor) or made.device.type != "cuda" or not made.dim():
        return False
    columns = made.shape[-1]
    if type(columns) is not int or columns < FEWEST or columns % MULTIPLE == 0:
        return False
    on_tensor_cores = made.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
    return made.dtype in (torch.bfloat16, torch.float16) or on_tensor_cores


def is_constant(value: Any) -> bool:
    """Return whether a node is an attribute of the module, a view of one, or one converted."""
    if not isinstance(value, Node) or not isinstance(example(value), torch.Tensor):
        return False
    if value.op == "get_attr":
        return True
    call = read(value)
    pure = value.target in TRANSPOSED or (call is not None and call.name in PURE)
    return pure and all(map(is_constant, value.all_input_nodes))


def padded(graph: torch.fx.Graph, node: Node, weight: Node, bias: Node | None, by_rows: bool) -> Found:
    """Pad the weight and bias of a product, whose columns are rows of the weight, or its columns."""
    whole = example(node)
    columns = whole.shape[-1]
    more = -columns % MULTIPLE
    before = NodeWriter(graph, node)
    node.replace_input_with(weight, before.call(F.pad, weight, (0, 0, 0, more) if by_rows else (0, more)))
    if bias is not None:
        node.replace_input_with(bias, before.call(F.pad, bias, (0, more)))
    users = list(node.users)
    with whole.fake_mode:
        node.meta["example_value"] = whole.new_empty((*whole.shape[:-1], columns + more))
    after = NodeWriter(graph, node.next)
    after.trace = before.trace
    kept = after.call(torch.narrow, node, -1, 0, columns)
    result = after.call(torch.clone, kept, memory_format=torch.contiguous_format)
    result.meta["example_value"] = whole
    for user in users:
        user.replace_input_with(node, result)
    return Found("product", place_of(node), f"{columns} columns padded to {columns + more}, with the weight")

"""Choose where blocks begin: where cutting a graph keeps no two operators out of one kernel.

A compiler fuses pointwise operators and reductions, and calls a library for products of matrices. Results of such calls
are in memory in any case, so a border costs nothing behind them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from torchdynamo.graph.passes.attention.kernels import masked_gradients
from torchdynamo.graph.regions.blocks import memory_of

Node = torch.fx.Node

LIBRARY: frozenset[Any] = frozenset(
    {F.linear, F.conv1d, F.conv2d, F.conv3d, F.scaled_dot_product_attention, masked_gradients, operator.matmul}
    | {torch.matmul, torch.mm, torch.bmm, torch.mv, torch.addmm, torch.baddbmm, torch.addbmm, torch.einsum}
    | {torch.conv1d, torch.conv2d, torch.conv3d, torch.convolution}
    | {"matmul", "mm", "bmm", "mv", "addmm", "baddbmm", "addbmm", "__matmul__"}
)


class Traffic:
    """Estimates what a graph reads and writes, and what a border adds to that."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.depth: dict[Node, int] = {}  # the most library calls on a path to the node
        self.owner: dict[int, Node] = {}  # memory -> the node that has made it
        for node in nodes:
            self.owner.setdefault(memory_of(node), node)
            below = max((self.depth.get(each, 0) for each in node.all_input_nodes), default=0)
            self.depth[node] = below + is_library_call(node)

    def lost(self, node: Node, inside: set[Node]) -> bool:
        """Return whether a value would be read by the kernel that makes it, if its readers outside were inside."""
        made = self.owner[memory_of(node)]
        if made.op == "placeholder" or is_library_call(made):
            return False
        readers = list(self.readers(made))
        return any(
            reader not in inside and (self.depth[reader] == self.depth[made] or len(readers) == 1)
            for reader in readers
            if not is_library_call(reader) and reader.op != "output"
        )

    def readers(self, node: Node) -> Iterator[Node]:
        """Yield the nodes that read a value, itself or through a view of it."""
        memory = memory_of(node)
        for user in node.users:
            if user.op != "output" and memory_of(user) == memory:
                yield from self.readers(user)
            else:
                yield user

    def lost_bytes(self, leaving: Sequence[Node], inside: set[Node]) -> int:
        """Return how many bytes of these values are read once more because of a border."""
        return sum(bytes_of(node) for node in leaving if self.lost(node, inside))


def is_library_call(node: Node) -> bool:
    """Return whether a node is computed by a library, not by a generated kernel."""
    return node.op in ("call_function", "call_method") and node.target in LIBRARY


def bytes_of(node: Node) -> int:
    """Return the size of a tensor in bytes; 1 where it is not known."""
    example = node.meta.get("example_value")
    if not isinstance(example, torch.Tensor):
        return 1
    count = example.numel()
    return count * example.itemsize if type(count) is int else 1

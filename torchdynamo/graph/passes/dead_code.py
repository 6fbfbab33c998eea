"""Removes what nothing uses and nothing can miss.

FX's own dead code elimination keeps to a list of impure functions and calls the rest pure; a method that writes in
place or an operation that may raise is not on it. Here only inputs and the picking of a result go: neither can fail,
write, or draw random numbers.
"""

from __future__ import annotations

import operator

import torch.fx


def remove_unused(graph: torch.fx.Graph) -> bool:
    """Drop unused picks of results, then unused inputs; whether anything went."""
    removed = False
    for node in reversed(graph.find_nodes(op="call_function", target=operator.getitem, sort=True)):
        if not node.users and picks_a_result(node):
            graph.erase_node(node)
            removed = True
    for node in graph.find_nodes(op="placeholder"):
        if not node.users:
            graph.erase_node(node)
            removed = True
    return removed


def picks_a_result(node: torch.fx.Node) -> bool:
    """Whether this takes one of an operation's several results, as against indexing a tensor, which can fail."""
    source = node.args[0]
    return isinstance(source, torch.fx.Node) and isinstance(source.meta.get("example_value"), (tuple, list))

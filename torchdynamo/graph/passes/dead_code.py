"""Remove nodes that nothing uses and whose removal cannot be noticed.

FX's own dead code elimination has a list of impure functions and removes the rest; methods that write in place and
operations that may raise are not on the list. Here only inputs, selections of a result and numbers are removed: none of
these can fail, write, or draw random numbers.
"""

from __future__ import annotations

import operator

import torch
import torch.fx

# Methods that return numbers: sizes, and values that an earlier operation has computed.
READS = frozenset({"size", "stride", "numel", "nelement", "storage_offset", "item", "tolist"})
# Functions on numbers that cannot fail.
ARITHMETIC = frozenset(
    {operator.add, operator.sub, operator.mul, operator.neg, operator.eq, operator.ne}
    | {operator.lt, operator.le, operator.gt, operator.ge, operator.and_, operator.or_, abs}
    | {torch.sym_max, torch.sym_min, torch.sym_not, torch.sym_ite, torch.sym_float}
)
NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def remove_unused(graph: torch.fx.Graph) -> bool:
    """Remove unused selections of results and numbers, then unused inputs; return whether anything was removed."""
    removed = False
    for node in reversed(graph.nodes):
        if node.op in ("call_function", "call_method") and not node.users and is_needless(node):
            graph.erase_node(node)
            removed = True
    for node in graph.find_nodes(op="placeholder"):
        if not node.users:
            graph.erase_node(node)
            removed = True
    return removed


def is_needless(node: torch.fx.Node) -> bool:
    """Return whether an unused node may be removed."""
    if node.op == "call_method":
        return node.target in READS and is_number(node.meta.get("example_value"))
    if node.target is operator.getitem:
        return picks_a_result(node)
    return node.target in ARITHMETIC and is_number(node.meta.get("example_value"))


def is_number(example: object) -> bool:
    """Return whether a node's example is a number or a list of numbers."""
    if isinstance(example, list):
        return all(map(is_number, example))
    return isinstance(example, (int, float, *NUMBERS))


def picks_a_result(node: torch.fx.Node) -> bool:
    """Return whether a node selects one of an operation's results, rather than indexing a tensor, which can fail."""
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, torch.fx.Node) and isinstance(source.meta.get("example_value"), (tuple, list))

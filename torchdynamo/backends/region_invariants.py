"""Compute once, before the first call of a region's body, what each of its calls would compute alike.

A whole graph has one node for what all its blocks compute of the same values, such as the numbers that attention makes
of a mask of truth values. So does a graph with regions, if a library reads the value: it is in memory in any case. What
generated kernels read stays in the body, since they compute it on the way.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
import torch.fx

Node = torch.fx.Node
aten = torch.ops.aten

PRODUCTS = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, aten.convolution.default}
ATTENTION = "aten._scaled_dot_product"  # what the names of its kernels begin with


def hoist_invariants(graph: torch.fx.Graph) -> None:
    """Move what is the same in all calls of a body, and read by a library, out of the bodies that a graph calls."""
    owner = graph.owning_module
    calls: dict[str, list[Node]] = {}
    for call in graph.find_nodes(op="call_function", target=torch.ops.higher_order.invoke_subgraph):
        calls.setdefault(str(call.args[0].target), []).append(call)
    for name, of_body in calls.items():
        body = getattr(owner, name)
        if len(of_body) > 1 and hoist(graph, body.graph, of_body):
            body.recompile()


def hoist(graph: torch.fx.Graph, body: torch.fx.Graph, calls: list[Node]) -> bool:
    """Move the invariants of one body before the first of its calls; return whether there were any."""
    slots = body.find_nodes(op="placeholder")
    columns = zip(slots, *(call.args[2:] for call in calls), strict=True)
    outside = {slot: given[0] for slot, *given in columns if all(each is given[0] for each in given)}
    needed = needed_by_libraries(invariants(body, outside))
    for node in needed:
        with graph.inserting_before(calls[0]):
            outside[node] = graph.node_copy(node, outside.__getitem__)
        if any(map(is_library_call, node.users)):
            slots.append(add_slot(body, slots[-1], node))
            outside[slots[-1]] = outside[node]
            for call in calls:
                call.args = (*call.args, outside[node])
                call.meta.pop("eager_input_vals", None)  # of the arguments before
    for node in reversed(needed):
        if not node.users:
            body.erase_node(node)
    return bool(needed)


def add_slot(body: torch.fx.Graph, last: Node, node: Node) -> Node:
    """Give a body a slot after its last one, in the place of this node."""
    with body.inserting_after(last):
        slot = body.placeholder(f"invariant_{node.name}")
    slot.meta = dict(node.meta)
    node.replace_all_uses_with(slot)
    return slot


def invariants(body: torch.fx.Graph, known: Collection[Node]) -> list[Node]:
    """Return the nodes of a body that compute the same in each call, given the slots that have the same value."""
    same = set(known)
    for node in body.nodes:
        if node.op == "call_function" and is_pure(node.target) and same.issuperset(node.all_input_nodes):
            same.add(node)
    return [node for node in body.nodes if node in same and node.op == "call_function"]


def needed_by_libraries(nodes: Sequence[Node]) -> list[Node]:
    """Return those of these nodes that a library reads, and those of which they are computed."""
    needed: set[Node] = set()
    for node in reversed(nodes):
        if any(user in needed or is_library_call(user) for user in node.users):
            needed.add(node)
    return [node for node in nodes if node in needed]


def is_library_call(node: Node) -> bool:
    """Return whether a node is computed by a library, not by a generated kernel."""
    return node.target in PRODUCTS or str(node.target).startswith(ATTENTION)


def is_pure(target: Any) -> bool:
    """Return whether an operator computes the same of the same arguments, and writes to none of them."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return not target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags

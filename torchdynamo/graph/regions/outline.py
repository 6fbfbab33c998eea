"""Move repeated blocks of a graph to bodies that are called: a compiler compiles each body once."""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

import torch
import torch.fx

from torchdynamo.graph.passes.enclose import body
from torchdynamo.graph.regions.blocks import block_of
from torchdynamo.graph.regions.families import Family, Limits, families


def outline(gm: torch.fx.GraphModule, written: Collection[str], limits: Limits, call: Any) -> list[Family]:
    """Replace repeated blocks by calls of bodies; return their families. Raises CannotOutline if there are none.

    written: names of the nodes whose memory is written to. call: the higher-order operator `call(body, name, *slots)`.
    """
    found = families(gm.graph, written, limits)
    for index, family in enumerate(found):
        replace(gm, family, f"region_{index}", call)
    gm.recompile()
    return found


def replace(gm: torch.fx.GraphModule, family: Family, name: str, call: Any) -> None:
    """Add the body of a family to a graph, and call it in the place of each block."""
    for nodes, _, _ in family.blocks:
        slots = block_of(nodes).slots  # again, because results of other families have been replaced
        leaving = [nodes[at] for at in family.results]
        if not hasattr(gm, name):
            setattr(gm, name, body(gm, nodes, slots, leaving))
        examples, trace = tuple(node.meta["example_value"] for node in leaving), nodes[-1].meta.get("stack_trace", "")
        with gm.graph.inserting_before(nodes[-1].next):
            holder = gm.graph.get_attr(name)
            holder.meta = {"example_value": None, "stack_trace": trace}
            called = gm.graph.call_function(call, (holder, name, *slots))
            called.meta = {"example_value": examples, "stack_trace": trace}
            for index, node in enumerate(leaving):
                if all(user in nodes for user in node.users):
                    continue
                item = gm.graph.call_function(operator.getitem, (called, index))
                item.meta = {"example_value": examples[index], "stack_trace": trace}
                node.replace_all_uses_with(item, delete_user_cb=lambda user, own=set(nodes): user not in own)  # type: ignore[misc]
        for node in reversed(nodes):
            gm.graph.erase_node(node)

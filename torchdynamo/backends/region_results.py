"""Let no result of a called body share memory with its arguments or its other results.

Inductor takes each result of a body for memory of its own, and writes later values to the memory of arguments that are
read no more. But a body may return what it was given, to save it for the backward, or one value under two names. Here
callers take arguments from where they have them, and views of results are made outside of the body.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.fx

Node = torch.fx.Node
aten = torch.ops.aten


class ResultOrigin(NamedTuple):
    """Where a caller finds a result: in an argument of the call or a result of the body, and views to take of that."""

    slot: int | None  # position of the argument; None: it is a result
    result: int  # position among the remaining results
    views: list[Node]  # nodes of the body, in order


class ResultsPlan(NamedTuple):
    """The results that remain of a body, and where its former ones are found."""

    remaining: list[Any]
    origins: list[ResultOrigin]


def separate_results(graph: torch.fx.Graph) -> None:
    """Rewrite the bodies that a graph calls as regions, and its calls, so that results have memory of their own."""
    owner = graph.owning_module
    plans: dict[str, ResultsPlan] = {}
    for call in graph.find_nodes(op="call_function", target=torch.ops.higher_order.invoke_subgraph):
        name = str(call.args[0].target)
        body = getattr(owner, name)
        if name not in plans:
            plans[name] = plan_of(body.graph)
            body.graph.output_node().args = (tuple(plans[name].remaining),)
            body.recompile()
        rewire(graph, call, plans[name])


def plan_of(body: torch.fx.Graph) -> ResultsPlan:
    """Return which results of a body are to remain, and where callers find the others."""
    slots = {node: at for at, node in enumerate(body.find_nodes(op="placeholder"))}
    results: list[Any] = [*body.output_node().args[0]]  # type: ignore[misc]
    chains = [chain_of(each) if memory_of(each) is not None else None for each in results]
    sharing = [None if chain is None else chain[0] for chain in chains]
    remaining: list[Any] = []
    places: dict[Node, int] = {}
    origins: list[ResultOrigin] = []
    for each, chain in zip(results, chains, strict=True):
        root, *views = chain or [each]
        outside = chain is not None and (root in slots or sharing.count(root) > 1)
        if outside and not are_repeatable(views, root):
            origins.append(ResultOrigin(None, len(remaining), []))
            remaining.append(copied(body, each))
        elif outside and root in slots:
            origins.append(ResultOrigin(slots[root], -1, views))
        elif outside:
            if root not in places:
                places[root] = len(remaining)
                remaining.append(root)
            origins.append(ResultOrigin(None, places[root], views))
        else:
            origins.append(ResultOrigin(None, len(remaining), []))
            remaining.append(each)
    return ResultsPlan(remaining, origins)


def memory_of(node: Any) -> int | None:
    """Return the address of the memory of a node's tensor; None for what is no tensor with memory."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        return int(value.untyped_storage()._cdata)
    return None


def chain_of(node: Node) -> list[Node]:
    """Return the node that has made the memory of a value, then the views that lead from there to the value."""
    chain = [node]
    while (step := viewed(chain[0])) is not None:
        chain[:1] = [*step, chain[0]]
    return chain


def viewed(node: Node) -> list[Node] | None:
    """Return the value that a node is a view of, and the node between that makes several views; None for no view."""
    memory = memory_of(node)
    for each in node.all_input_nodes:
        if memory_of(each) == memory:
            return [each]
        if isinstance(each.meta.get("val"), (tuple, list)):
            for base in each.all_input_nodes:
                if memory_of(base) == memory:
                    return [base, each]
    return None


def are_repeatable(views: Sequence[Node], root: Node) -> bool:
    """Return whether views can be taken outside of the body: they use no other value of it."""
    known = {root, *views}
    return all(known.issuperset(view.all_input_nodes) for view in views)


def copied(body: torch.fx.Graph, node: Node) -> Node:
    """Add a copy of a result to a body, and return it."""
    with body.inserting_before(body.output_node()):
        copy = body.call_function(aten.clone.default, (node,))
    copy.meta = {**node.meta, "val": node.meta["val"].clone()}
    return copy


def rewire(graph: torch.fx.Graph, call: Node, plan: ResultsPlan) -> None:
    """Make the users of a call's results take them from where the plan says."""
    users = list(call.users)
    call.meta["val"] = tuple(each.meta["val"] if isinstance(each, Node) else None for each in plan.remaining)
    items: dict[int, Node] = {}
    for user in users:
        slot, result, views = plan.origins[position_in(user)]
        with graph.inserting_before(user):
            if slot is None and result not in items:
                items[result] = graph.call_function(operator.getitem, (call, result))
                items[result].meta = {**user.meta, "val": call.meta["val"][result]}
                call.append(items[result])
            found: Any = items[result] if slot is None else call.args[2 + slot]
            known = {root_of(views): found}
            for view in views:
                known[view] = graph.node_copy(view, known.__getitem__)
        user.replace_all_uses_with(known[views[-1]] if views else found)
        graph.erase_node(user)


def position_in(item: Node) -> int:
    """Return which result of a call a node selects."""
    position = item.args[1]
    assert isinstance(position, int)
    return position


def root_of(views: Sequence[Node]) -> Node | None:
    """Return the value that these views are taken of; None if there are none."""
    return next((each for view in views for each in view.all_input_nodes if each not in views), None)

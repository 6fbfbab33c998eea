"""Spell activations so that Inductor does not fuse them into oneDNN's convolutions, which turn NaN into zero."""

from __future__ import annotations

from itertools import dropwhile
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F


def rewrite(graph: torch.fx.Graph) -> int:
    """Write relu, relu6 and hardtanh as maximum and minimum; return how many were rewritten."""
    found = 0
    for node in list(graph.nodes):
        bounds = bounds_of(node)
        example = node.meta.get("example_value")
        if bounds is None or not isinstance(example, torch.Tensor) or not example.is_floating_point():
            continue
        if writes(node) and not owns_its_memory(graph, node.args[0], node):
            continue
        value: Any = node.args[0]
        with graph.inserting_before(node):
            for limit, bound in zip((torch.maximum, torch.minimum), bounds, strict=True):
                if bound is not None:
                    options: dict[str, Any] = {"dtype": example.dtype, "device": example.device}
                    number = graph.call_function(torch.full, ((), bound), options)
                    value = graph.call_function(limit, (value, number))
                    value.meta = dict(node.meta)
        if writes(node):  # who reads the input from now on reads what was written to it
            later = set(dropwhile(lambda each, node=node: each is not node, graph.nodes))  # type: ignore[misc]
            node.args[0].replace_all_uses_with(value, lambda user, later=later: user in later)
        node.replace_all_uses_with(value)
        graph.erase_node(node)
        found += 1
    return found


def writes(node: torch.fx.Node) -> bool:
    """Return whether an activation writes its result to its input."""
    return bool(node.kwargs.get("inplace")) or True in node.args[1:] or node.target in (torch.relu_, "relu_")


def owns_its_memory(graph: torch.fx.Graph, value: Any, activation: torch.fx.Node) -> bool:
    """Return whether a value computed by the graph shares memory with nothing but activations written to it."""
    example = value.meta.get("example_value") if isinstance(value, torch.fx.Node) else None
    if not isinstance(example, torch.Tensor) or not value.op.startswith("call_"):
        return False
    memory = example.untyped_storage()._cdata
    sharing = [
        each
        for each in graph.nodes
        if isinstance(each.meta.get("example_value"), torch.Tensor)
        and each.meta["example_value"].untyped_storage()._cdata == memory
        and each is not value
    ]
    return all(each is activation or (bounds_of(each) is not None and writes(each)) for each in sharing)


def bounds_of(node: torch.fx.Node) -> tuple[float | None, float | None] | None:
    """Return (lowest, highest) of an activation that clamps by constants; None for other nodes."""
    if node.op == "call_method":
        return (0.0, None) if node.target in ("relu", "relu_") else None
    if node.op != "call_function" or not node.args:
        return None
    if node.target in (F.relu, torch.relu, torch.relu_):
        return 0.0, None
    if node.target is F.relu6:
        return 0.0, 6.0
    if node.target is F.hardtanh:
        given = dict(zip(("min_val", "max_val"), node.args[1:])) | node.kwargs
        low, high = given.get("min_val", -1.0), given.get("max_val", 1.0)
        return (float(low), float(high)) if {type(low), type(high)} <= {int, float} else None  # type: ignore[arg-type]
    return None

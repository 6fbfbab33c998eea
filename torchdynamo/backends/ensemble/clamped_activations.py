"""Spell activations so that Inductor does not fuse them into oneDNN's convolutions, which turn NaN into zero."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

_RELUS = frozenset({F.relu, torch.relu})


def rewrite(graph: torch.fx.Graph) -> int:
    """Write relu, relu6 and hardtanh as maximum and minimum; return how many were rewritten."""
    found = 0
    for node in list(graph.nodes):
        bounds = bounds_of(node)
        example = node.meta.get("example_value")
        if bounds is None or not isinstance(example, torch.Tensor) or not example.is_floating_point():
            continue
        low, high = bounds
        value: Any = node.args[0]
        with graph.inserting_before(node):
            for limit, bound in ((torch.maximum, low), (torch.minimum, high)):
                if bound is not None:
                    options: dict[str, Any] = {"dtype": example.dtype, "device": example.device}
                    number = graph.call_function(torch.full, ((), bound), options)
                    value = graph.call_function(limit, (value, number))
                    value.meta = dict(node.meta)
        node.replace_all_uses_with(value)
        graph.erase_node(node)
        found += 1
    return found


def bounds_of(node: torch.fx.Node) -> tuple[float | None, float | None] | None:
    """Return (lowest, highest) of an activation that clamps by constants and writes to nothing; None for others."""
    if node.op == "call_method" and node.target == "relu":
        return 0.0, None
    if node.op != "call_function" or node.kwargs.get("inplace") or not node.args:
        return None
    if node.target in _RELUS:
        return None if True in node.args[1:] else (0.0, None)
    if node.target is F.relu6:
        return None if True in node.args[1:] else (0.0, 6.0)
    if node.target is F.hardtanh:
        given = [*node.args[1:], None, None]
        low = node.kwargs.get("min_val", -1.0 if given[0] is None else given[0])
        high = node.kwargs.get("max_val", 1.0 if given[1] is None else given[1])
        numbers = type(low) in (int, float) and type(high) in (int, float) and True not in node.args[3:]
        return (float(low), float(high)) if numbers else None  # type: ignore[arg-type]
    return None

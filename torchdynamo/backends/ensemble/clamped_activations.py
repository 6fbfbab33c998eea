"""Spell activations so that Inductor does not fuse them into oneDNN's convolutions, which turn NaN into zero."""

from __future__ import annotations

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
    """Return (lowest, highest) of an activation that clamps by constants; None for other nodes.

    None, too, for one that writes to its input where anybody else may see that.
    """
    found = _bounds(node)
    in_place = bool(node.kwargs.get("inplace")) or True in node.args[1:] or str(node.target).endswith("_")
    return None if found is None or (in_place and not _is_unseen(node.args[0])) else found


def _bounds(node: torch.fx.Node) -> tuple[float | None, float | None] | None:
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


def _is_unseen(value: Any) -> bool:
    """Return whether a value is read by one node only, and shares memory with no other."""
    if not isinstance(value, torch.fx.Node) or not value.op.startswith("call_") or len(value.users) != 1:
        return False
    example = value.meta.get("example_value")
    return isinstance(example, torch.Tensor) and not example._is_view() and example._base is None

"""Compute functions of Python's math module on symbols by one custom operator on 0-dim tensors.

Tracers do not know these functions. The operator calls Python's own, so results are equal to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

_TRUTHS = ("isnan", "isfinite", "isinf")
_FLOATS = (
    "exp exp2 expm1 log log10 log1p pow cbrt hypot fmod copysign degrees radians atan2 asinh acosh atanh erf erfc "
    "gamma lgamma".split()
)
KNOWN: dict[Any, str] = {getattr(math, name): name for name in (*_TRUTHS, *_FLOATS) if hasattr(math, name)}


def _dtype(name: str) -> torch.dtype:
    return torch.bool if name in _TRUTHS else torch.float64


@torch.library.custom_op("torchdynamo::of_numbers", mutates_args=())
def of_numbers(name: str, numbers: Sequence[torch.Tensor]) -> torch.Tensor:
    """Compute the math function of this name."""
    return torch.tensor(getattr(math, name)(*(each.item() for each in numbers)), dtype=_dtype(name))


@of_numbers.register_fake
def _like(name: str, numbers: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.empty((), dtype=_dtype(name))


def by_operator(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Replace a call of a math function on symbols by the custom operator."""
    if node.kwargs or not node.all_input_nodes:
        return
    with graph.inserting_before(node):
        boxes = [graph.call_function(torch.scalar_tensor, (arg,), {"dtype": torch.float64}) for arg in node.args]
        answer = graph.call_function(torch.ops.torchdynamo.of_numbers.default, (KNOWN[node.target], boxes))
        number = graph.call_method("item", (answer,))
    node.replace_all_uses_with(number)
    graph.erase_node(node)

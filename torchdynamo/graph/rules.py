"""What operators give, where torch would take them apart to say so: slow for what every layer of a network does.

A rule speaks of the usual case only, and says None of any other: then torch's own way is gone. Each is held against
torch's own in tests/graph/test_rules.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

aten = torch.ops.aten
RULES: dict[Any, Callable[..., Any]] = {}


def rule(operator: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """This is what the operator gives for stand-ins."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        RULES[operator] = fn
        return fn

    return register


@rule(aten.native_batch_norm.default)
def batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor | None,
    var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """On the CPU, and dense: of a view, torch's own way tells other strides than there will be."""
    for channels in (weight, bias, mean, var):
        if channels is not None and (channels.dtype != x.dtype or channels.shape != x.shape[1:2]):
            return None
    if x.device.type != "cpu" or x.dim() < 2 or not (training or (mean is not None and var is not None)):
        return None
    kept = x.shape[1] if training else 0
    dense = torch.empty_like(x, memory_format=suggest_memory_format(x))
    return dense, x.new_empty(kept), x.new_empty(kept)

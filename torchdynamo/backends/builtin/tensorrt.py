"""Decline every graph for `tensorrt`, which is not supported, so that code that tries it first can go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.fx

from torchdynamo.backends.preserve import leaves_inputs_alone
from torchdynamo.backends.registry import register_backend


@register_backend
@leaves_inputs_alone
def tensorrt(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> None:
    """Decline the graph: return None."""

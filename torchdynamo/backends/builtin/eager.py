"""The graph as it is: for debugging, and the measure of every other backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.fx

from torchdynamo.backends.preserve import leaves_inputs_alone
from torchdynamo.backends.registry import register_backend


@register_backend
@leaves_inputs_alone
def eager(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Run the captured operations one by one, as they were."""
    forward: Callable[..., Any] = gm.forward
    return forward

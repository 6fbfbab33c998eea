"""Run the captured graph operator by operator: for debugging, and as the reference for every other backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.fx

from torchdynamo.backends.preserve import leaves_inputs_alone
from torchdynamo.backends.registry import register_backend, runs_as_captured, takes_wrappers
from torchdynamo.errors import InternalError


@register_backend
@takes_wrappers
@leaves_inputs_alone
@runs_as_captured
def eager(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return the graph's own forward, which runs the captured operators one by one."""
    forward: Callable[..., Any] = gm.forward
    return forward


@register_backend
@takes_wrappers
@leaves_inputs_alone
def eager_noexcept(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Run the captured operators one by one; any exception becomes an InternalError."""

    def run(*args: Any) -> Any:
        try:
            return gm.forward(*args)
        except Exception as error:
            raise InternalError(f"an operator of a graph raised {type(error).__name__}: {error}") from error

    return run

"""Trace the graph again to ATen operators above autograd and run that, to test that captures survive such a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from torchdynamo.backends.preserve import is_for_eager, leaves_inputs_alone
from torchdynamo.backends.registry import fixed_sizes, register_backend
from torchdynamo.graph.torch_compat import MODE_CHANGES


@register_backend
@fixed_sizes
@leaves_inputs_alone
def pre_dispatch_eager(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any] | None:
    """Trace with fake tensors before autograd, autocast and functionalization act; return the traced graph.

    Declines graphs that must run in eager, graphs under autocast or inference mode, which such a trace does not record,
    and inputs that are not tensors.
    """
    if is_for_eager(gm, example_inputs) or not all(isinstance(each, torch.Tensor) for each in example_inputs):
        return None
    modes = {node.target for node in gm.graph.nodes if node.target in MODE_CHANGES}
    if modes - {torch._C._set_grad_enabled} or torch.is_inference_mode_enabled() or torch._C._is_any_autocast_enabled():
        return None
    from torch.fx.experimental.proxy_tensor import make_fx

    def run(*args: Any) -> Any:
        return torch.fx.Interpreter(gm).run(*args)

    traced: Callable[..., Any] = make_fx(run, tracing_mode="fake", pre_dispatch=True)(*example_inputs).forward
    return traced

"""Compile graphs by TorchScript, for programs that still want it: the graph is traced again and frozen."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from torchdynamo.backends.registry import fixed_sizes, register_backend, tries_graphs
from torchdynamo.graph.mutation import changes_modes, makes_leaves


@register_backend
@tries_graphs
@fixed_sizes
def ts(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any] | None:
    """Trace by `torch.jit.trace` and freeze the result; return None for graphs that a trace cannot represent."""
    return _trace(gm, example_inputs, torch.jit.freeze)


@register_backend
@tries_graphs
@fixed_sizes
def ofi(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any] | None:
    """Trace, and apply `torch.jit.optimize_for_inference`; return None for graphs that need gradients."""
    if torch.is_grad_enabled() and any(value.requires_grad for value in example_inputs):
        return None
    return _trace(gm, example_inputs, torch.jit.optimize_for_inference)


def _trace(gm: torch.fx.GraphModule, inputs: Sequence[Any], then: Callable[[Any], Any]) -> Callable[..., Any] | None:
    if not all(isinstance(value, torch.Tensor) for value in inputs) or not inputs:
        return None
    if changes_modes(gm) or makes_leaves(gm):  # a trace records operators on tensors only
        return None
    training = gm.training
    with warnings.catch_warnings():
        # Deprecation of TorchScript, and remarks on constants that our guards hold.
        warnings.simplefilter("ignore")
        try:
            trace: Callable[..., Any] = torch.jit.trace
            traced = trace(gm.eval(), tuple(inputs), check_trace=False, strict=False)
            result: Callable[..., Any] = then(traced)
        finally:
            gm.train(training)
    return result

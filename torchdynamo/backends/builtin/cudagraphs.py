"""Record the graph's own operators once as a CUDA graph and replay it, which saves the cost of kernel launches.

Declines graphs that a recording cannot repeat: with no GPU or several, an input or constant on another device, inputs
that are written to or returned, random numbers, or results that need gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from torchdynamo.backends.preserve import leaves_inputs_alone
from torchdynamo.backends.registry import fixed_sizes, register_backend
from torchdynamo.graph.mutation import changes_modes, effects_of, makes_leaves
from torchdynamo.graph.numbers import has_numbers

_WARM_UPS = 2  # runs before recording, on a side stream: libraries allocate workspaces on their first use


@register_backend
@fixed_sizes
@leaves_inputs_alone
def cudagraphs(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any] | None:
    """Return a recording of the graph; None where a replay would not give the same results."""
    if not torch.cuda.is_available() or not example_inputs or not _repeatable(gm, example_inputs):
        return None
    static = [bool(node.meta.get("static_input")) for node in _inputs(gm)]
    return Recording(gm.forward, example_inputs, static)


def _repeatable(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    if not all(isinstance(value, torch.Tensor) and value.is_cuda for value in inputs):
        return False
    if len({value.device for value in inputs}) != 1 or any(torch._debug_has_internal_overlap(t) for t in inputs):
        return False
    effects = effects_of(gm)
    if has_numbers(gm) or effects.mutated or effects.random or changes_modes(gm) or makes_leaves(gm):
        return False
    if torch.is_grad_enabled() and any(value.requires_grad for value in inputs):
        return False
    examples = [node.meta.get("example_value") for node in gm.graph.nodes if node.op != "output"]
    tensors = _tensors(examples)
    memory = {t.untyped_storage()._cdata for node in _inputs(gm) for t in _tensors(node.meta.get("example_value"))}
    results = _tensors(gm.graph.output_node().meta.get("example_value"))
    return all(t.is_cuda for t in tensors) and not any(t.untyped_storage()._cdata in memory for t in results)


def _inputs(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return list(gm.graph.find_nodes(op="placeholder"))


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, (tuple, list)) else []


class Recording:
    """A recorded run. Static inputs are read in place; others are copied to the memory that the recording reads.

    If a static input has moved (`.data =`, `.to()`), the run is recorded again.
    """

    def __init__(self, run: Callable[..., Any], inputs: Sequence[torch.Tensor], static: Sequence[bool]) -> None:
        self.run = run
        self.moving = [i for i, stays in enumerate(static) if not stays]
        self.staying = [i for i, stays in enumerate(static) if stays]
        self.addresses: list[int] = []
        self.record(inputs)

    def record(self, inputs: Sequence[torch.Tensor]) -> None:
        """Copy the inputs that are not static, warm up, and record one run."""
        self.inputs = list(inputs)
        for i in self.moving:
            self.inputs[i] = torch.empty_strided(
                inputs[i].shape, inputs[i].stride(), dtype=inputs[i].dtype, device=inputs[i].device
            ).copy_(inputs[i].detach())
        self.addresses = [inputs[i].data_ptr() for i in self.staying]
        device = self.inputs[0].device
        with torch.cuda.device(device), torch.no_grad():
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(_WARM_UPS):
                    self.run(*self.inputs)
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.outputs = self.run(*self.inputs)

    def __call__(self, *args: torch.Tensor) -> Any:
        if self.addresses != [args[i].data_ptr() for i in self.staying]:
            self.record(args)
        with torch.no_grad():
            for i in self.moving:
                self.inputs[i].copy_(args[i])
            self.graph.replay()
            return tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in self.outputs)

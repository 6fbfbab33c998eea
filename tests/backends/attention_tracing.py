"""A backend that rewrites graphs, and what tests compare its results with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._functorch.aot_autograd import aot_module_simplified

import torchdynamo
from torchdynamo.backends.checked_contents import Checked
from torchdynamo.backends.handoff import handoff
from torchdynamo.backends.rewrites import outcome_of, rewritten
from torchdynamo.graph.passes.losses.plan import LossPlan

Tensors = list[torch.Tensor]


class Traced:
    """A backend that rewrites graphs as "inductor" does, and runs by operators what AOTAutograd makes of them."""

    def __init__(self, losses: LossPlan | None = None) -> None:
        self.losses = losses  # in how many chunks
        self.graphs: list[torch.fx.Graph] = []  # in the order of compilation: forward, backward
        self.lines: list[str] = []
        self.spare = 0  # graphs compiled because contents had changed

    def keep(self, gm: torch.fx.GraphModule, _: Any) -> Any:
        self.graphs.append(gm.graph)
        return make_boxed_func(gm.forward)

    def __call__(self, gm: torch.fx.GraphModule, inputs: Any, by_contents: bool = True) -> Any:
        with handoff(gm, inputs) as ready:
            contents = rewritten(ready.module, gm, inputs, {}, by_contents=by_contents, losses=self.losses)
            made = aot_module_simplified(ready.module, ready.inputs, fw_compiler=self.keep, bw_compiler=self.keep)
        found = outcome_of(gm)
        self.lines += found.lines() if found is not None else []
        run = ready.as_captured(made)
        return run if contents is None else Checked(run, contents, lambda args: self.again(gm, args))

    def again(self, gm: torch.fx.GraphModule, args: Any) -> Any:
        self.spare += 1
        return self(gm, args, by_contents=False)

    @property
    def fused(self) -> list[int]:
        """How often each graph calls the operator, by itself or as an argument of one that keeps random numbers."""
        return [
            sum("aten._scaled_dot_product" in f"{node.target} {node.args}" for node in graph.nodes)
            for graph in self.graphs
        ]


def outcome(fn: Callable[..., Any], given: Tensors, training: bool) -> Tensors:
    """The result, and the gradients."""
    given = [each.clone().requires_grad_(training) for each in given]
    with torch.set_grad_enabled(training):
        result = fn(*given)
        if training:
            weights = torch.linspace(-1, 1, result.numel(), dtype=result.dtype, device=result.device)
            result.backward(weights.view_as(result))
    return [result.detach(), *(each.grad for each in given if each.grad is not None)]


def compiled(fn: Callable[..., Any], given: Tensors, training: bool = False) -> tuple[Tensors, Traced]:
    torchdynamo.reset()
    traced = Traced()
    with torchdynamo.config.patch(suppress_errors=False):
        return outcome(torchdynamo.compile(fn, backend=traced, fullgraph=True), given, training), traced


def distance(found: Tensors, exact: Tensors) -> float:
    ones, others = (torch.cat([each.double().flatten() for each in many]) for many in (found, exact))
    return float((ones - others).square().mean().sqrt())

"""What an autograd.Function of the user's is in a graph: an operation that gives results a backward of their own.

Its forward is in the graph before it, operator by operator and without gradients, as autograd runs it. The operation
takes the inputs and the results, and hands the results on, from now on with the history that autograd gives to those of
such a function: eager's rules on views, inputs that are given back and inputs that are written to are autograd's own.
Its backward is a body, captured with the forward. Autograd runs it eagerly, and AOTAutograd traces it like any other.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.fx
from torch._ops import HigherOrderOperator
from torch.autograd.function import once_differentiable

from torchdynamo.graph.modes import Modes
from torchdynamo.graph.mutation import changes_modes
from torchdynamo.graph.tracebacks import PROGRAMS, Program, hide_own_frames
from torchdynamo.hook.install import Compiled, CompiledGraph


def layout_of(tensor: torch.Tensor) -> torch.memory_format:
    """Return the layout in which the backward gets a tensor's gradient."""
    if all(type(size) is int for size in tensor.shape) and not tensor.is_contiguous():
        for rank, layout in ((4, torch.channels_last), (5, torch.channels_last_3d)):
            if tensor.dim() == rank and tensor.is_contiguous(memory_format=layout):
                return layout
    return torch.contiguous_format


def gradient_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake tensor for the gradient of a tensor."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).contiguous(
        memory_format=layout_of(tensor)
    )


def twin(tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake tensor like this one, with memory of its own."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.requires_grad_(tensor.requires_grad)


class BackwardVariant(NamedTuple):
    """A backward for one choice of gradients that are there."""

    there: tuple[bool, ...]  # by result: whether its gradient is there
    body: Any  # a graph module; in a graph, the node that holds it
    takes: tuple[int, ...]  # by argument of the body: its place among gradients, saved tensors and what is kept
    gives: tuple[int, ...]  # by input: which result of the body is its gradient; -1: it has none


class BackwardPlan(NamedTuple):
    """What is the same in every call. A nest of constants, and of bodies."""

    name: str
    once: bool  # its gradients have no history
    zeros: bool  # a gradient that is not there comes as zeros
    dirty: tuple[int, ...]  # inputs that the forward has written to
    constant: tuple[int, ...]  # results without gradients
    formats: tuple[torch.memory_format, ...]  # by result: the layout in which the body gets its gradient
    ways: tuple[BackwardVariant, ...]


def quietly_run(body: torch.fx.GraphModule, name: str) -> CompiledGraph:
    """Make a body callable. What it raises has the traceback of the program's backward."""
    run, program = body.forward, PROGRAMS.get(body, Program())
    return CompiledGraph(run, name, on_error=lambda error, _: program.shown(error, run.__code__))


def run_backward(ctx: Any, *grads: Any) -> Any:
    """Return the gradients of the inputs."""
    plan = ctx.plan
    there = tuple(grad is not None for grad in grads)
    way = next((way for way in plan.ways if way.there == there), None)
    if way is None:
        raise RuntimeError(f"the backward of {plan.name} was captured for other gradients than those it is given")
    given = [
        None if grad is None else grad.contiguous(memory_format=layout)
        for grad, layout in zip(grads, plan.formats, strict=True)
    ]
    given += [*ctx.saved_tensors, *ctx.kept]
    outside = Modes.now() if changes_modes(way.body) else None
    with as_backwards_run():
        found = quietly_run(way.body, plan.name)(*[given[index] for index in way.takes])
        if outside is not None:  # the body puts back what it found when it was captured
            outside.restore()
    return (None, None, None, None, *[None if index < 0 else found[index] for index in way.gives])


class OwnBackward(torch.autograd.Function):
    """The function that autograd sees."""

    @staticmethod
    def forward(
        ctx: Any, plan: BackwardPlan, results: Sequence[Any], saved: Sequence[Any], kept: Any, *inputs: Any
    ) -> Any:
        ctx.plan, ctx.kept = plan, kept
        ctx.save_for_backward(*saved)
        ctx.set_materialize_grads(plan.zeros)
        ctx.mark_dirty(*[inputs[index] for index in plan.dirty])
        ctx.mark_non_differentiable(*[results[index] for index in plan.constant])
        return tuple(results)

    backward = staticmethod(Compiled(run_backward, None, way=hide_own_frames))  # out of reach of the hook


class OwnBackwardOnce(OwnBackward):
    """The same, whose gradients cannot be differentiated again."""

    backward = staticmethod(once_differentiable(OwnBackward.backward))


@functools.cache
def function_of(name: str, once: bool) -> Any:
    """Return the class, with the user's name: autograd's messages say it."""
    return type(name, (OwnBackwardOnce if once else OwnBackward,), {})


def as_backwards_run() -> contextlib.AbstractContextManager[Any]:
    """Return what is traced is traced where the forward is, and a backward runs outside of the forward's autocast."""
    traced = torch._C._len_torch_dispatch_stack() > 0
    context: contextlib.AbstractContextManager[Any] = (
        torch._C._DisableAutocast() if traced else contextlib.nullcontext()
    )
    return context


class WithBackward(HigherOrderOperator):
    """The operation, by the name that graphs print."""

    def __init__(self) -> None:
        super().__init__("with_backward", cacheable=False)

    def __call__(
        self,
        plan: Any,
        inputs: Sequence[Any],
        results: Sequence[Any],
        saved: Sequence[Any],
        kept: Sequence[Any],
    ) -> tuple[Any, ...]:
        whole = BackwardPlan._make((*plan[:-1], tuple(BackwardVariant(*way) for way in plan[-1])))
        given: tuple[Any, ...] = function_of(whole.name, whole.once).apply(whole, results, saved, kept, *inputs)
        return given


with_backward = WithBackward()

"""Represent a user's autograd.Function in the graph: an operator that gives results a backward of their own.

The forward is in the graph before it, operator by operator and without gradients, as autograd runs it. The operator
takes the inputs and the results, and returns the results with the history that autograd gives to such a function's
results: eager's rules for views, returned inputs and modified inputs are autograd's own. The backward is a body,
captured along with the forward. Autograd runs it eagerly, and AOTAutograd traces it like any other. One that has read
what may have changed by the time it runs, or branches on what it computes, is not traced: each time, it looks whether
that is as it was in the capture, and runs as the program wrote it if not.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.fx
from torch._ops import HigherOrderOperator
from torch.autograd.function import once_differentiable
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from torchdynamo.core.source import Position
from torchdynamo.graph.backward_as_written import BackwardAsWritten
from torchdynamo.graph.modes import Modes
from torchdynamo.graph.mutation import changes_modes
from torchdynamo.graph.tracebacks import PROGRAMS, Program, hide_own_frames
from torchdynamo.hook.install import Compiled, CompiledGraph


def layout_of(tensor: torch.Tensor) -> torch.memory_format:
    """Return the memory format in which the backward gets a tensor's gradient."""
    if all(type(size) is int for size in tensor.shape) and not tensor.is_contiguous():
        for rank, layout in ((4, torch.channels_last), (5, torch.channels_last_3d)):
            if tensor.dim() == rank and tensor.is_contiguous(memory_format=layout):
                return layout
    return torch.contiguous_format


def gradient_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake gradient of a fake tensor."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).contiguous(
        memory_format=layout_of(tensor)
    )


def twin(tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake tensor with the same metadata and memory of its own."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.requires_grad_(tensor.requires_grad)


@dataclass(frozen=True)
class BackwardVariant:
    """A backward captured for one choice of gradients that are given."""

    there: tuple[bool, ...]  # for each result: its gradient is given
    grad: bool | None  # the grad mode that it is for; None: for either
    body: Any  # a graph module; in a graph, the node that holds it
    takes: tuple[int, ...]  # for each argument of the body: its position in (gradients, saved tensors, kept values)
    gives: tuple[int, ...]  # for each input: the position of its gradient among the body's results, or -1
    truths: tuple[bool, ...]  # what the body's last results, which are conditions, have to be


@dataclass(frozen=True)
class BackwardPlan:
    """The constant part of an operator with its own backward: settings of the function, and its bodies.

    A node has it as a dictionary: what an argument holds is found, and printed, only in containers of Python's.
    """

    name: str
    once: bool  # the function is `once_differentiable`
    zeros: bool  # missing gradients are passed as zeros (`set_materialize_grads`)
    dirty: tuple[int, ...]  # inputs that the forward has written to
    constant: tuple[int, ...]  # results without gradients
    formats: tuple[torch.memory_format, ...]  # for each result: the layout in which the body gets its gradient
    written: BackwardAsWritten | None  # what runs where the bodies do not hold; None: they always do
    ways: tuple[BackwardVariant, ...]

    @classmethod
    def of_argument(cls, argument: Mapping[str, Any]) -> BackwardPlan:
        """Return the plan that a node has as its first argument, with what the graph holds in place of nodes."""
        return cls(**{**argument, "ways": tuple(BackwardVariant(**way) for way in argument["ways"])})

    def as_argument(self, hold: Callable[[str, Any], torch.fx.Node]) -> dict[str, Any]:
        """Return the plan as an argument of a node. hold: given a hint and an object, returns the node that has it."""
        ways = tuple({**vars(way), "body": hold("backward", way.body)} for way in self.ways)
        return {**vars(self), "written": self.written and hold("written", self.written), "ways": ways}


def body_callable(body: torch.fx.GraphModule, name: str) -> CompiledGraph:
    """Return a body as a callable whose errors have the traceback of the program's backward."""
    run, program = body.forward, PROGRAMS.get(body, Program())
    return CompiledGraph(run, name, on_error=lambda error, _: program.shown(error, run.__code__))


def run_backward(ctx: Any, *grads: Any) -> Any:
    """Return the gradients of the inputs, of a captured body where one holds."""
    plan = ctx.plan
    there = tuple(grad is not None for grad in grads)
    modes = None, torch.is_grad_enabled()
    way = next((way for way in plan.ways if way.there == there and way.grad in modes), None)
    saved, found = None, None
    if way is not None and (plan.written is None or captured_may_hold(ctx, grads)):
        saved = ctx.saved_tensors
        found = run_body(ctx, way, grads, saved)
    if found is None:
        found = plan.written.gradients(ctx, grads, saved)
    return (None, None, None, None, *found)


def captured_may_hold(ctx: Any, grads: Sequence[Any]) -> bool:
    """Return whether a backward that may run as written has no reason to yet: what it has read is as it was.

    Gradients laid out otherwise than those it was captured for would give results laid out otherwise. And one that has
    run as written may have changed its context.
    """
    plan = ctx.plan
    as_planned = all(
        grad is None or grad.is_contiguous(memory_format=layout)
        for grad, layout in zip(grads, plan.formats, strict=True)
    )
    return ctx.written is None and as_planned and plan.written.holds()


def run_body(ctx: Any, way: BackwardVariant, grads: Sequence[Any], saved: Sequence[Any]) -> list[Any] | None:
    """Return the gradients that a body gives; None if it rests on a condition that does not hold."""
    plan = ctx.plan
    given = [
        None if grad is None else grad.contiguous(memory_format=layout)
        for grad, layout in zip(grads, plan.formats, strict=True)
    ]
    given += [*saved, *ctx.kept]
    outside = Modes.now() if changes_modes(way.body) else None
    with backward_context():
        found = body_callable(way.body, plan.name)(*[given[index] for index in way.takes])
        if outside is not None:  # the body restores the modes of its capture, not those of this call
            outside.restore()
    conditions = found[len(found) - len(way.truths) :]
    if any(bool(condition) is not truth for condition, truth in zip(conditions, way.truths, strict=True)):
        return None
    return [None if index < 0 else found[index] for index in way.gives]


class OwnBackward(torch.autograd.Function):
    """The autograd.Function whose backward runs a captured body."""

    @staticmethod
    def forward(
        ctx: Any, plan: BackwardPlan, results: Sequence[Any], saved: Sequence[Any], kept: Any, *inputs: Any
    ) -> Any:
        ctx.plan, ctx.kept, ctx.written = plan, kept, None
        ctx.save_for_backward(*saved)
        ctx.set_materialize_grads(plan.zeros)
        ctx.mark_dirty(*[inputs[index] for index in plan.dirty])
        ctx.mark_non_differentiable(*[results[index] for index in plan.constant])
        return tuple(results)

    backward = staticmethod(Compiled(run_backward, None, way=hide_own_frames))  # not captured by the frame hook


class OwnBackwardOnce(OwnBackward):
    """An OwnBackward whose gradients cannot be differentiated again."""

    backward = staticmethod(once_differentiable(OwnBackward.backward))


@functools.cache
def function_of(name: str, once: bool) -> Any:
    """Return the autograd.Function with the user's class name, which autograd's messages contain."""
    return type(name, (OwnBackwardOnce if once else OwnBackward,), {})


def backward_context() -> contextlib.AbstractContextManager[Any]:
    """Return a context without autocast where a backward is traced: a real one runs outside of the forward's."""
    traced = torch._C._len_torch_dispatch_stack() > 0
    context: contextlib.AbstractContextManager[Any] = (
        torch._C._DisableAutocast() if traced else contextlib.nullcontext()
    )
    return context


def is_differentiated(inputs: Sequence[Any]) -> bool:
    """Return whether autograd records what is computed of these tensors."""
    return torch.is_grad_enabled() and any(each.requires_grad for each in inputs)


class CannotBeTraced(RuntimeError):
    """Raised where AOTAutograd traces a backward that looks at the program each time it runs."""


class WithBackward(HigherOrderOperator):
    """The operator that attaches the backward, under the name that graphs print."""

    def __init__(self) -> None:
        super().__init__("with_backward", cacheable=False)

    def __call__(
        self,
        plan: Mapping[str, Any],
        inputs: Sequence[Any],
        results: Sequence[Any],
        saved: Sequence[Any],
        kept: Sequence[Any],
    ) -> tuple[Any, ...]:
        whole = BackwardPlan.of_argument(plan)
        if whole.written is not None and get_proxy_mode() is not None and is_differentiated(inputs):
            raise CannotBeTraced(f"the backward of {whole.name} looks at what may have changed each time it runs")
        given: tuple[Any, ...] = function_of(whole.name, whole.once).apply(whole, results, saved, kept, *inputs)
        return given


with_backward = WithBackward()


class Bodies(Protocol):
    """Define what is asked of the builder of a graph."""

    def hold(self, hint: str, body: Any, position: Position | None) -> torch.fx.Node:
        """Return the node that stands for a body."""

    def call(self, op: str, target: Any, args: tuple[Any, ...], kwargs: Any, position: Position | None) -> Any:
        """Return the node of a call, and what it gives."""


def give_own_backward(
    builder: Bodies, plan: BackwardPlan, groups: Sequence[list[torch.fx.Node]], position: Position | None
) -> tuple[torch.fx.Node, Any]:
    """Give results a backward of their own; return the node and what it gives.

    plan: with graph modules for bodies. groups: inputs, results, saved tensors, kept values.
    """
    args = (plan.as_argument(lambda hint, obj: builder.hold(hint, obj, position)), *groups)
    given: tuple[torch.fx.Node, Any] = builder.call("call_function", with_backward, args, {}, position)
    return given


def runs_as_written(node: torch.fx.Node) -> bool:
    """Return whether a node gives a backward that may run as the program wrote it, or belongs to such a node."""
    if node.op == "get_attr":
        return any(user.target is with_backward and runs_as_written(user) for user in node.users)
    if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
        return runs_as_written(node.args[0])
    return node.target is with_backward and node.args[0]["written"] is not None  # type: ignore[index, call-overload]

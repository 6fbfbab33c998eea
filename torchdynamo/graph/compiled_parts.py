"""Give autograd a compiled graph as a chain of nodes, one for each part of its backward.

Each node returns the gradients that its part has finished, so that what waits for these (hooks of
DistributedDataParallel, above all) begins while the next part runs. A node gets at the next one by a ticket: an empty
tensor, whose gradient says no more than that it is the next one's turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from torchdynamo.graph.compiled_calls import in_context, save_nothing_more
from torchdynamo.graph.compiled_nodes import compiled_class, hide_frames
from torchdynamo.hook.install import Compiled

POSITIONS = "_torchdynamo_positions"  # attribute of autograd functions: positions of their inputs, for each part
CALL = "_torchdynamo_call"  # attribute of autograd nodes: what those of one call share


class Gradients(Protocol):
    """The gradients of one backward, part by part."""

    def gradients(self, at: int) -> list[Any]:
        """Return the gradients that a part has finished, those of earlier parts having been asked for."""


class Backward(Protocol):
    """A compiled backward in parts."""

    @property
    def positions(self) -> Sequence[Sequence[int]]:
        """Positions of the inputs whose gradients a part finishes, for each part."""

    def begin(self, args: list[Any]) -> Gradients:
        """Return the gradients of a backward with these arguments."""


class Whole:
    """Gradients that were computed all at once."""

    def __init__(self, backward: Backward, found: Sequence[Any]) -> None:
        self.backward, self.found = backward, list(found)

    def gradients(self, at: int) -> list[Any]:
        result = [self.found[position] for position in self.backward.positions[at]]
        for position in self.backward.positions[at]:
            self.found[position] = None
        return result


Running = dict[int, Gradients]
"""Backwards of one call that are under way, by the number of autograd's task."""


def input_edges(node: Any, tensors: Sequence[bool]) -> dict[int, tuple[Any, int]]:
    """Return the edges by which autograd goes from a graph's node to what its inputs were computed by.

    tensors: for each input, whether it is a tensor. Nothing is returned if AOTAutograd has added inputs or merged some.
    """
    positions: Sequence[Sequence[int]] = getattr(compiled_class(node), POSITIONS, (range(len(tensors)),))
    found: dict[int, tuple[Any, int]] = {}
    for number, part in enumerate(positions, 1):
        there = [at for at in part if tensors[at]]
        edges = node.next_functions
        if number < len(positions):
            (node, _), *edges = edges  # the ticket's comes first
        if len(there) != len(edges):
            return {}
        found.update(zip(there, edges, strict=True))
    return found


def chained(base: Any, backward: Backward, device: torch.device, autocast: bool) -> Callable[..., Any]:
    """Return a function that calls a compiled graph with one autograd node for each part of its backward.

    base: the autograd function that `compiled_calls.kernels_only` has made for it, for a forward under autocast or not.
    """
    last = len(backward.positions) - 1
    turn = torch.empty(0, device=device)  # the gradient of each ticket

    def compute(begun: Gradients, at: int) -> list[Any]:
        with torch._C._DisableAutocast() if autocast else contextlib.nullcontext():
            found: list[Any] = in_context(begun.gradients, at)
            return found

    finished: Any = Compiled(compute, None)  # frames are not captured in there

    class CompiledFunction(base):
        @staticmethod
        def forward(ctx: Any, running: Running, ticket: Any, args: tuple[Any, ...], *early: Any) -> Any:
            setattr(ctx, CALL, running)
            return base.forward(ctx, *args)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            args = base.arguments(ctx, grads)
            if args is None:
                begun: Gradients = Whole(backward, base.own_backward(ctx, *grads))
            else:
                begun = backward.begin(args)
            found = finished(begun, 0)
            getattr(ctx, CALL)[torch._C._current_graph_task_id()] = begun
            return (None, turn, None, *found)

    class CompiledPart(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, running: Running, at: int, ticket: Any, *inputs: Any) -> Any:
            setattr(ctx, CALL, running)
            ctx.at = at
            return torch.empty(0, device=device)

        @staticmethod
        def backward(ctx: Any, ticket: Any) -> Any:
            running, task = getattr(ctx, CALL), torch._C._current_graph_task_id()
            begun = running.pop(task) if ctx.at == last else running[task]
            found = finished(begun, ctx.at)
            return (None, None, None if ctx.at == last else turn, *found)

    setattr(CompiledFunction, POSITIONS, backward.positions)
    save_nothing_more(CompiledFunction)
    hide_frames(CompiledFunction)
    hide_frames(CompiledPart)
    apply = super(torch.autograd.Function, CompiledFunction).apply  # type: ignore[misc]
    apply_part = super(torch.autograd.Function, CompiledPart).apply
    first, *others = backward.positions
    steps = [(at, positions) for at, positions in enumerate(others, 1)][::-1]

    def run(*args: Any) -> Any:
        running: Running = {}
        ticket = None
        for at, positions in steps:
            ticket = apply_part(running, at, ticket, *[args[position] for position in positions])
        return apply(running, ticket, args, *[args[position] for position in first])

    return run

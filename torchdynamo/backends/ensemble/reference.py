"""Make the inputs that members are tried on, with what eager returns or raises for each."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch.utils import _pytree as pytree

from torchdynamo.backends.ensemble.float64 import in_float64
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.backends.preserve import RandomState, mutated_positions
from torchdynamo.backends.verify import copied
from torchdynamo.graph.modes import Modes

Run = Callable[..., Any]
SEED = 0
ProbeKind: TypeAlias = Literal["ordinary", "special", "denormal", "index"]
"""Kinds of inputs: values as in calls, NaN or infinities, denormal numbers, or an integer that may be a bad index."""


class Outcome(NamedTuple):
    """Results of one run of a graph, or the error that it raised."""

    results: list[Any]
    """The leaves of what it returned."""
    written: list[torch.Tensor]
    """The inputs that the graph writes to, as the run left them."""
    gradients: list[torch.Tensor | None]
    """Gradients of the inputs that require one; empty if none is wanted."""
    given: list[Any]
    """The inputs that the run was given."""
    error: Exception | None = None

    @property
    def values(self) -> list[Any]:
        return [*self.results, *self.written, *self.gradients]


class Probe(NamedTuple):
    """Inputs of one trial, and eager's outcome."""

    name: str
    kind: ProbeKind
    inputs: list[Any]
    wanted: Outcome
    exact: list[Any] | None
    """The results in float64; None if they are not to be had, or not asked for."""


class Reference:
    """The probes of a graph. Eager runs once for each, whatever the number of members that are tried on it."""

    def __init__(self, subgraph: Subgraph) -> None:
        self.subgraph = subgraph
        self.writes = mutated_positions(subgraph.gm)
        self.made: list[Probe] = []
        self.rest = self.probes()

    def __iter__(self) -> Iterator[Probe]:
        """Yield the probes, most telling first; those made for an earlier member are not made again."""
        yield from self.made
        for probe in self.rest:
            self.made.append(probe)
            yield probe

    @property
    def raises(self) -> bool:
        """Return whether eager raises for the call's own inputs."""
        return next(iter(self)).wanted.error is not None

    def probes(self) -> Iterator[Probe]:
        """Yield the probes: the call's inputs, random ones, and those at the edges of what numbers can be."""
        graph, inputs = self.subgraph, self.subgraph.example_inputs
        yield self.probe("its inputs", "ordinary", inputs)
        if graph.is_symbolic:
            return
        generator = torch.Generator().manual_seed(SEED)
        shuffled = functools.partial(random_like, generator=generator)
        yield self.probe("random inputs", "ordinary", self.changed(shuffled))
        if graph.wants_gradients:
            return  # a member that trains is Inductor or eager, which agree at the edges
        for name, value in SPECIAL.items():
            probe = self.changed(functools.partial(with_special, value=value, generator=generator))
            if any(new is not old for new, old in zip(probe, inputs)):
                yield self.probe(f"inputs with {name}", "denormal" if math.isfinite(value) else "special", probe)
        for position in self.integers():
            for name, index in (("-1", -1), ("an index past the end", 2**31 - 1)):
                other = list(inputs)
                other[position] = with_last(inputs[position], index)
                yield self.probe(f"{name} among integers", "index", other)

    def probe(self, name: str, kind: ProbeKind, inputs: Sequence[Any]) -> Probe:
        wanted = self.outcome(self.subgraph.gm.forward, inputs)
        exact = kind == "ordinary" and wanted.error is None and not self.writes
        return Probe(name, kind, list(inputs), wanted, in_float64(self.subgraph.gm, inputs) if exact else None)

    def changed(self, change: Callable[[torch.Tensor], torch.Tensor]) -> list[Any]:
        """Return the inputs with `change` applied to the tensors that are no parameters or buffers."""
        return [
            change(value) if isinstance(value, torch.Tensor) and not node.meta.get("static_input") else value
            for node, value in zip(self.subgraph.placeholders, self.subgraph.example_inputs, strict=True)
        ]

    def integers(self) -> list[int]:
        """Return the positions of inputs that may hold indices. None on a GPU, where a bad one ends the process."""
        return [
            position
            for position, (node, value) in enumerate(
                zip(self.subgraph.placeholders, self.subgraph.example_inputs, strict=True)
            )
            if isinstance(value, torch.Tensor)
            and not node.meta.get("static_input")
            and value.dtype in (torch.int32, torch.int64)
            and value.numel()
            and value.device.type == "cpu"
        ]

    def outcome(self, run: Run, inputs: Sequence[Any]) -> Outcome:
        """Run on these inputs, on copies of those that the graph writes to; return what came of it, an error too.

        Modes and generators are left as they were.
        """
        modes, random = Modes.now(), RandomState()
        trains = self.subgraph.wants_gradients
        given = [copied(each) if trains or position in self.writes else each for position, each in enumerate(inputs)]
        try:
            results = pytree.tree_leaves(run(*given))
            gradients = gradients_of(results, given) if trains else []
        except Exception as error:
            return Outcome([], [], [], given, error.with_traceback(None))
        finally:
            modes.restore()
            random.restore()
        written = [given[position] for position in self.writes]
        return Outcome(results, written, gradients, given)


def gradients_of(results: Sequence[Any], inputs: Sequence[Any]) -> list[torch.Tensor | None]:
    """Return the gradients of the inputs that require one, for a fixed gradient of each result."""
    ends = [each for each in results if isinstance(each, torch.Tensor) and each.requires_grad]
    leaves = [each for each in inputs if isinstance(each, torch.Tensor) and each.requires_grad]
    if not ends or not leaves:
        return []
    given = [torch.linspace(-1, 1, max(end.numel(), 1), device=end.device)[: end.numel()] for end in ends]
    shaped = [each.reshape(end.shape).to(end.dtype) for each, end in zip(given, ends)]
    return list(torch.autograd.grad(ends, leaves, shaped, allow_unused=True))


SPECIAL = {
    "NaN": float("nan"),
    "infinity": float("inf"),
    "negative infinity": float("-inf"),
    "denormal numbers": 1e-42,
}


def random_like(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return other values of the same kind: floats of the same mean and spread, integers in another order."""
    if not tensor.numel():
        return tensor
    if tensor.is_floating_point():
        spread, mean = torch.std_mean(tensor.detach().double(), correction=0)
        spread, mean = torch.nan_to_num(spread, 1.0, 1.0, 1.0), torch.nan_to_num(mean, 0.0, 0.0, 0.0)
        values = torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.device) * spread + mean
    else:
        order = torch.randperm(tensor.numel(), generator=generator).to(tensor.device)
        values = tensor.detach().reshape(-1)[order].reshape(tensor.shape)
    return _as(tensor, values)


def with_special(tensor: torch.Tensor, value: float, generator: torch.Generator) -> torch.Tensor:
    """Return a tensor with a special value at one place in sixteen; the tensor itself if it holds no floats."""
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor
    places = torch.rand(tensor.shape, generator=generator) < 1 / 16
    places.view(-1)[-1] = True
    return _as(tensor, tensor.detach().masked_fill(places.to(tensor.device), value))


def with_last(tensor: torch.Tensor, value: int) -> torch.Tensor:
    """Return integers with another value in last place."""
    values = tensor.detach().clone(memory_format=torch.contiguous_format)
    values.view(-1)[-1] = value
    return _as(tensor, values)


def _as(like: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return values in the layout of another tensor, a leaf that requires a gradient if that does."""
    overlaps = torch._debug_has_internal_overlap(like) != 0
    made = (
        torch.empty_like(like)
        if overlaps
        else torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
    )
    made.detach().copy_(values)
    return made.requires_grad_(like.requires_grad)

"""Members of the tests' own, and what they compete for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

import torchdynamo
from torchdynamo.backends.ensemble.choice import Choice, choices
from torchdynamo.backends.ensemble.member import Member, Run
from torchdynamo.backends.ensemble.requirements import constants_allowed, no_gradients
from torchdynamo.backends.ensemble.subgraph import Subgraph

Wrap = Callable[[Run], Run]


def member(name: str, wrap: Wrap, **facts: Any) -> Member:
    """A member that runs the captured graph inside of `wrap`. It takes every graph, and is built at once."""

    def build(subgraph: Subgraph) -> Run:
        return wrap(subgraph.gm.forward)

    return Member(name, build, **{"cost": 0.0, "rank": 5, **facts})


def compiled(fn: Any, **options: Any) -> Any:
    return torchdynamo.compile(fn, backend="ensemble", options=options)


def the_choice() -> Choice:
    """The only choice there is."""
    (found,) = [each for each in choices if each.candidates]
    return found


def states() -> dict[str, str]:
    return {name: each.state for name, each in the_choice().candidates.items()}


def reasons() -> dict[str, str]:
    return {name: each.reason for name, each in the_choice().candidates.items()}


def slow(seconds: float) -> Wrap:
    """Make a run so much slower."""

    def wrap(run: Run) -> Run:
        def slower(*args: Any) -> Any:
            time.sleep(seconds)
            return run(*args)

        return slower

    return wrap


def work(x: torch.Tensor) -> torch.Tensor:
    """Something that takes a while and may be slept through."""
    for _ in range(3):
        x = torch.tanh(x @ x)
    return x


def freezing(subgraph: Subgraph) -> Run:
    """Copy the weights, as a runtime does that packs them."""
    frozen = subgraph.frozen()
    for name, buffer in list(frozen.module.named_buffers()):
        frozen.module.register_buffer(name, buffer.clone())
    return frozen.module.forward


FREEZING = Member("freezing", freezing, (constants_allowed, no_gradients), cost=0.0, rank=1, makes_constants=True)

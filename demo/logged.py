"""A network that logs each layer at a level that is off, as libraries do."""

from __future__ import annotations

import logging

import torch
from contest import Compile, Program, Run

LAYERS = 8

log = logging.getLogger("demo.network")


def network(x: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
    for index, weight in enumerate(weights):
        log.debug("layer %d gets %s", index, x.shape)
        x = x + torch.tanh(x @ weight)
    return x


def prepare(compile: Compile) -> Run:
    """Compile the network; a run is one call."""
    torch.manual_seed(0)
    x, weights = torch.randn(1, 64), [torch.randn(64, 64) / 8 for _ in range(LAYERS)]
    compiled = compile(network)
    return lambda: compiled(x, weights)


PROGRAM = Program(
    title=f"A network of {LAYERS} layers that logs each, with logging off",
    about="A message is a graph break for torch.compile; torchdynamo guards the level of the logger.",
    unit="call",
    units=1,
    runs=300,
    prepare=prepare,
)

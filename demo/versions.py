"""One function, six versions, called in turn: a string and a dict decide what it does."""

from __future__ import annotations

import torch
from contest import Compile, Program, Run

VERSIONS = [(name, {"center": center}) for name in ("relu", "tanh", "silu") for center in (True, False)]


def activate(x: torch.Tensor, name: str, options: dict[str, bool]) -> torch.Tensor:
    if options["center"]:
        x = x - x.mean(dim=-1, keepdim=True)
    if name == "relu":
        return torch.relu(x) + 1
    if name == "tanh":
        return torch.tanh(x) + 1
    return x * torch.sigmoid(x) + 1


def prepare(compile: Compile) -> Run:
    """Warm up one version after the other, as a service does; a run then calls each once."""
    torch.manual_seed(0)
    x = torch.randn(1, 64)
    compiled = compile(activate)
    for name, options in VERSIONS:
        compiled(x, name, options)
        compiled(x, name, options)

    def each_once() -> torch.Tensor:
        return torch.cat([compiled(x, name, options) for name, options in VERSIONS])

    return each_once


PROGRAM = Program(
    title=f"One function, {len(VERSIONS)} versions, called in turn: a string and a dict decide",
    about="Which version fits is found by a native program, not by trying one after the other from Python.",
    unit="call",
    units=len(VERSIONS),
    runs=100,
    prepare=prepare,
)

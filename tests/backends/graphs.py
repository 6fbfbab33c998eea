"""Graphs built by hand, as capture would build them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from torchdynamo.core.source import Position, local
from torchdynamo.graph import GraphBuilder
from torchdynamo.graph.check import check

HERE = Position("user.py", 3, function="step")


class Tape:
    """Calls operations on nodes."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        op = "call_method" if isinstance(target, str) else "call_function"
        return self.builder.call(op, target, args, kwargs, HERE)[0]


def build(body: Callable[..., Any], *inputs: torch.Tensor, static: Sequence[int] = ()) -> torch.fx.GraphModule:
    """The graph of `body(tape, *nodes)`, which returns a node or several."""
    tape = Tape()
    nodes = [tape.builder.input(f"x{i}", t, local(f"x{i}"), i in static)[0] for i, t in enumerate(inputs)]
    grad = torch.is_grad_enabled()
    try:
        results = body(tape, *nodes)
    finally:
        torch._C._set_grad_enabled(grad)
    gm = tape.builder.finish(list(results) if isinstance(results, tuple) else [results])
    check(gm)
    return gm

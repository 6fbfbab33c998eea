"""A backend that counts the graphs that it compiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchdynamo.optimizations import BACKENDS


class Counted:
    """Passes graphs on to a backend; `graphs` says how many."""

    def __init__(self, backend: str) -> None:
        self.backend = BACKENDS[backend]
        self.graphs = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[torch.Tensor]) -> Callable[..., Any] | None:
        self.graphs += 1
        return self.backend(gm, example_inputs)

"""Backends return None for graphs they cannot do, so they can be tried in turn."""

from __future__ import annotations

import torch

import torchdynamo
from torchdynamo.optimizations import BACKENDS


def my_compiler(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]):
    for name in ("tensorrt", "cudagraphs"):
        compiled = BACKENDS[name](gm, example_inputs)
        print(name, "declined" if compiled is None else "took the graph")
        if compiled is not None:
            return compiled
    return gm.forward


@torchdynamo.optimize(my_compiler)
def scaled(x, y):
    return torch.relu(x @ y) / y.shape[0]


if __name__ == "__main__":
    print(scaled(torch.ones(2, 4), torch.ones(4, 3)))

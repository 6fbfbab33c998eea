"""The first thing to try: what graphs come out of a function with a branch, by a backend that prints them."""

from __future__ import annotations

import torch

import torchdynamo


def toy_example(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def my_compiler(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]):
    print("my_compiler() called with FX graph:")
    gm.graph.print_tabular()
    return gm.forward  # a backend returns something to call with the graph's inputs


if __name__ == "__main__":
    with torchdynamo.optimize(my_compiler):
        for _ in range(100):
            toy_example(torch.randn(10), torch.randn(10))

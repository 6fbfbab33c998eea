"""Backends that fail, for tests of `repro`, and the programs that they fail on."""

from __future__ import annotations

import os
import signal
import time

import torch


def is_relu(node):
    return node.target in (torch.relu, torch.nn.functional.relu, "relu")


def wrong(gm, example_inputs):
    """Compute relu as a negation."""
    for node in gm.graph.nodes:
        if is_relu(node):
            node.op, node.target, node.kwargs = "call_function", torch.neg, {}
    gm.recompile()
    return gm.forward


def imprecise(gm, example_inputs):
    """Return results with an error of 1%, where there is a relu."""
    wide = 1 + 1e-2 * any(map(is_relu, gm.graph.nodes))
    return lambda *args: tuple(each * wide if isinstance(each, torch.Tensor) else each for each in gm.forward(*args))


def detached(gm, example_inputs):
    """Return results without their gradients."""
    return lambda *args: tuple(each.detach() for each in gm.forward(*args))


def refusing(gm, example_inputs):
    """Raise for a graph with a relu."""
    if any(map(is_relu, gm.graph.nodes)):
        raise OverflowError("there is a relu")
    return gm.forward


def raising(gm, example_inputs):
    """Raise when a graph with a relu runs, after half of it may have run."""
    if not any(map(is_relu, gm.graph.nodes)):
        return gm.forward

    def run(*args):
        raise OverflowError("a relu ran")

    return run


def deadly(gm, example_inputs):
    """End the process for a graph with a relu."""
    if any(map(is_relu, gm.graph.nodes)):
        os.kill(os.getpid(), signal.SIGKILL)
    return gm.forward


def endless(gm, example_inputs):
    """Compile a graph with a relu for ever."""
    while any(map(is_relu, gm.graph.nodes)):
        time.sleep(0.1)
    return gm.forward


def long_way(x, weight, index):
    """Compute by some forty operators, of which one is a relu."""
    for scale in range(1, 9):
        x = (x * scale).sin() + x.cos() / scale
    y = torch.relu(x @ weight)
    for scale in range(1, 4):
        y = y.tanh() * scale + y.sum(1, keepdim=True)
    return y[index].sqrt(), x


def arguments(requires_grad=False):
    torch.manual_seed(1)
    return torch.randn(6, 5), torch.randn(5, 5, requires_grad=requires_grad), torch.tensor([3, 0, 5])

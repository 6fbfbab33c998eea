"""What programs say to torch.compile is honoured by us."""

from __future__ import annotations

import torch

import torchdynamo


def inner(x):
    return x * 2


@torch.compiler.disable
def disabled(x):
    return inner(x) + 1


def calls_disabled(x):
    return disabled(x + 1) * 3


def counting():
    seen = []

    def backend(gm, example_inputs):
        seen.extend(node.name for node in gm.graph.nodes if node.op == "call_function")
        return gm.forward

    return backend, seen


def test_a_disabled_function_runs_eagerly_with_all_it_calls():
    torchdynamo.reset()
    backend, seen = counting()
    compiled = torchdynamo.compile(calls_disabled, backend=backend)
    x = torch.randn(3)
    for _ in range(3):
        assert torch.equal(compiled(x), calls_disabled(x))
    assert seen == ["add", "mul"]  # before and after; nothing of `disabled` or `inner`


def test_is_compiling_is_true_while_capturing_only():
    def asks(x):
        return x + 1 if torch.compiler.is_compiling() and torchdynamo.is_compiling() else x - 1

    x = torch.zeros(2)
    assert torch.equal(torchdynamo.compile(asks, backend="eager", fullgraph=True)(x), x + 1)
    assert torch.equal(asks(x), x - 1)


def test_skip_leaves_one_frame_to_python():
    torchdynamo.reset()
    backend, seen = counting()

    @torchdynamo.skip
    def skipped(x):
        return inner(x) + 1

    x = torch.randn(3)
    assert torch.equal(torchdynamo.compile(skipped, backend=backend)(x), x * 2 + 1)
    assert seen == ["mul"]

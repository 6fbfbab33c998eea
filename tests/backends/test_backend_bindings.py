"""Operators of AOTAutograd's graphs are called by PyTorch's bindings, where these make the very same call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx

import torchdynamo
from torchdynamo.backends import aot_autograd
from torchdynamo.backends.bindings import bare, binding

F = torch.nn.functional
Program = Callable[[torch.Tensor], Any]

# Operators by which one graph says each, and whether there is a binding.
CALLS: dict[str, tuple[Program, str, bool]] = {
    "two tensors": (lambda x: x + x.sin(), "add.Tensor", True),
    "a tensor and a number": (lambda x: x + 1, "add.Tensor", True),
    "a number by its name": (lambda x: torch.sub(x, x.cos(), alpha=2), "sub.Tensor", True),
    "a tensor without dimensions": (lambda x: x * x.sum(), "mul.Tensor", True),
    "a power of a number": (lambda x: 2**x, "pow.Scalar", True),
    "a power": (lambda x: x**2, "pow.Tensor_Scalar", True),
    "dimensions": (lambda x: x.sum([0], keepdim=True), "sum.dim_IntList", True),
    "a dtype": (lambda x: x.sum(0, dtype=torch.float64), "sum.dim_IntList", True),
    "nothing on one side": (lambda x: x.clamp(max=0.5), "clamp.default", True),
    "two results": (lambda x: x.max(0), "max.dim", True),
    "a list of results": (lambda x: x.unbind(), "unbind.int", True),
    "a list of tensors": (lambda x: torch.cat([x, x.sin()], 1), "cat.default", True),
    "indices and holes": (lambda x: x[:, torch.tensor([1, 0])], "index.Tensor", False),
    "a method alone": (lambda x: x.sin().view(-1), "view.default", True),
    "a function of torch.nn": (lambda x: F.leaky_relu(x, 0.1), "leaky_relu.default", True),
    "an enumeration of strings": (lambda x: F.gelu(x, approximate="tanh"), "gelu.default", True),
    "no tensor": (lambda x: x + torch.full((4,), 2.0), "full.default", True),
    "another default": (lambda x: F.multi_margin_loss(x, torch.arange(4)), "multi_margin_loss.default", False),
    "fewer results in Python": (lambda x: x.unique_consecutive(), "unique_consecutive.default", False),
    "a list of results in Python": (lambda x: x.split(2), "split.Tensor", False),
    "Python around it": (lambda x: torch.cdist(x, x), "_cdist_forward.default", False),
    "a private one": (lambda x: x.to(torch.float64), "_to_copy.default", False),
}


@pytest.mark.parametrize("what", CALLS)
def test_the_same_call_is_made(what: str) -> None:
    program, operator, bound = CALLS[what]
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    (graph,) = traced(program, x)
    (node,) = [node for node in graph.nodes if str(node.target) == f"aten.{operator}"]
    assert (binding(node) is not None) == bound
    compiled = torchdynamo.compile(program, backend="aot_eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)


def test_numbers_that_vary_go_by_the_schema() -> None:
    graphs = traced(lambda x: x.sin().view(x.size(0) * 4) * 2, torch.randn(4, 4), dynamic=True)
    (node,) = [node for graph in graphs for node in graph.nodes if str(node.target) == "aten.view.default"]
    assert binding(node) is None


def test_what_has_no_binding_is_called_without_the_python_around_it() -> None:
    op = torch.ops.aten._to_copy.default
    assert torch.equal(bare(op)(torch.ones(2), dtype=torch.int64), torch.ones(2, dtype=torch.int64))
    assert bare(op) is bare(op)


def test_an_error_is_the_operators_own() -> None:
    def pick(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return x.sin().index_select(0, at)

    compiled = torchdynamo.compile(pick, backend="aot_eager")
    compiled(torch.ones(3), torch.tensor([0]))
    for function in (pick, compiled):
        with pytest.raises((IndexError, RuntimeError), match="out of range"):
            function(torch.ones(3), torch.tensor([5]))


def traced(program: Program, x: torch.Tensor, dynamic: bool | None = None) -> list[torch.fx.Graph]:
    graphs: list[torch.fx.Graph] = []

    def keep(gm: torch.fx.GraphModule, inputs: Any) -> None:
        graphs.append(copy.deepcopy(gm.graph))

    with torchdynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torchdynamo.compile(program, backend=aot_autograd(keep), dynamic=dynamic)(x)
    return graphs

"""The specification of a graph: each rule, broken once."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx

from torchdynamo.core.source import local
from torchdynamo.graph import GraphBuilder
from torchdynamo.graph.check import MalformedGraph, check, is_operator


def good() -> torch.fx.GraphModule:
    builder = GraphBuilder()
    a, _ = builder.input("a", torch.randn(3), local("a"), False)
    b, _ = builder.input("b", torch.randn(3), local("b"), True)
    total, _ = builder.call("call_function", operator.add, (a, b), {}, None)
    sine, _ = builder.call("call_method", "sin", (total,), {}, None)
    return builder.finish([total, sine])


def node(gm: torch.fx.GraphModule, name: str) -> torch.fx.Node:
    return next(node for node in gm.graph.nodes if node.name == name)


def user_function(x: Any) -> Any:
    return x


def set_target(name: str, target: Any) -> Callable[[torch.fx.GraphModule], None]:
    return lambda gm: setattr(node(gm, name), "target", target)


BREAKS: dict[str, tuple[Callable[[torch.fx.GraphModule], Any], str]] = {
    "foreign meta": (lambda gm: node(gm, "add").meta.update(mine=1), "carries mine"),
    "no example": (lambda gm: node(gm, "add").meta.pop("example_value"), "lacks example_value"),
    "no position": (lambda gm: node(gm, "add").meta.pop("stack_trace"), "lacks stack_trace"),
    "user function": (set_target("add", user_function), "is no operator"),
    "unknown method": (set_target("sin", "frobnicate"), "is no method of tensors"),
    "renamed input": (set_target("a", "other"), "passed as other"),
    "same source": (lambda gm: node(gm, "a").meta.update(source=node(gm, "b").meta["source"]), "same source"),
    "not a tuple": (lambda gm: setattr(node(gm, "output"), "args", (node(gm, "add"),)), "not one tuple"),
    "not nodes": (lambda gm: setattr(node(gm, "output"), "args", ((1,),)), "not a tuple of nodes"),
    "order": (lambda gm: node(gm, "add").append(node(gm, "b")), "placeholders must come first"),
    "use before": (
        lambda gm: node(gm, "sin").prepend(node(gm, "sin")) or node(gm, "add").prepend(node(gm, "sin")),
        "does not come before",
    ),
    "object": (lambda gm: setattr(node(gm, "sin"), "kwargs", {"x": torch.Generator()}), "argument of type Generator"),
    "module call": (lambda gm: setattr(node(gm, "sin"), "op", "call_module"), "is a call_module"),
}


def test_a_built_graph_is_good() -> None:
    check(good())


@pytest.mark.parametrize("name", BREAKS)
def test_each_rule(name: str) -> None:
    gm = good()
    breaking, message = BREAKS[name]
    breaking(gm)
    with pytest.raises(MalformedGraph, match=message):
        check(gm)


@pytest.mark.parametrize(
    "target",
    [torch.abs, operator.add, len, getattr, torch.nn.functional.dropout, torch.ops.aten.add, torch.ops.aten.add.Tensor]
    + [torch.ops.higher_order.cond, torch.Tensor.add, torch._C._set_grad_enabled, __import__("math").sqrt],
)
def test_operators(target: Any) -> None:
    assert is_operator(target)


def test_python_of_the_users_is_no_operator() -> None:
    assert not is_operator(user_function)
    assert not is_operator(lambda x: x)

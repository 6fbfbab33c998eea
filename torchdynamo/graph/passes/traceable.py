"""Rewrite nodes for a tracer, where it would specialize symbols or round differently."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
import torch.fx
import torch.fx.experimental.proxy_tensor
from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode
from torch.utils import _pytree as pytree

from torchdynamo.core.policy import CHECKPOINT
from torchdynamo.graph import scalar_math, shape_env, torch_compat
from torchdynamo.graph.decompositions import CORRECTED
from torchdynamo.graph.modules import graph_module
from torchdynamo.graph.recurrent import RECURRENT
from torchdynamo.graph.selective_checkpoint import SelectiveCheckpoint
from torchdynamo.graph.wrappers import is_wrapper

FUNCTIONS = ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2")
# function of floats -> its counterpart for torch's symbolic numbers
AGAIN: dict[Any, Any] = {
    getattr(math, name): getattr(torch, f"_sym_{name}") for name in FUNCTIONS if hasattr(torch, f"_sym_{name}")
}
CHECKS = frozenset(
    {torch._assert, torch._check, torch._check_index, torch._check_value, torch._check_type}
    | {torch._check_not_implemented}
)
OPERATORS = frozenset({"torch", "torch._C._nn", "torch.functional", "torch.nn.functional"})


def make_traceable(graph: torch.fx.Graph, *, exact: bool) -> None:
    """Rewrite a graph so that it can be traced. exact: the traced graph must round as eager does."""
    without_inference_mode(graph)
    delay_sizes(graph)
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        given = torch.fx.node.map_arg([*node.args, *node.kwargs.values()], lambda arg: arg.meta.get("example_value"))
        symbolic = shape_env.is_symbolic(given)
        if symbolic:
            node.target = torch_compat.takes_symbols(node.target)
        if node.target in AGAIN:
            node.target = AGAIN[node.target]
        elif node.target in scalar_math.KNOWN:
            scalar_math.by_operator(graph, node)
        elif node.target in CHECKS:
            keep_check(graph, node)
        elif node.target in (torch.equal, torch.allclose):
            compare(graph, node)
        elif node.target is CHECKPOINT:
            node.target = tag_activation_checkpoint
        elif type(node.target) is SelectiveCheckpoint:
            node.target = SelectiveCheckpoint(node.target.context_fn, traced=True)
        elif exact and not symbolic and is_operator(node.target) and all(map(is_fixed, node.all_input_nodes)):
            node.target = as_eager(node.target)
        elif node.target in CORRECTED:
            node.target = CORRECTED[node.target]


def delay_sizes(graph: torch.fx.Graph) -> None:
    """Begin a graph that has wrappers with a call after which the tracer records sizes only where they are used.

    Nested tensors compute with ragged sizes, which are no values of the traced graph. Their `__torch_function__` asks
    the tracer for this, but capture has inlined that.
    """
    first = next((node for node in graph.nodes if node.op != "placeholder"), None)
    examples = (node.meta.get("example_value") for node in graph.nodes)
    if first is not None and any(map(is_wrapper, examples)):
        with graph.inserting_before(first):
            graph.call_function(record_sizes_late)


def record_sizes_late() -> None:
    """Have the tracer record computations with sizes only where they are used, until the graph ends."""
    mode = torch.fx.experimental.proxy_tensor.get_proxy_mode()
    if mode is not None:
        mode.tracer.enable_thunkify = True


def is_fixed(node: torch.fx.Node) -> bool:
    """Return whether a value has only constant sizes; symbolic ones need operators decomposed."""
    leaves = pytree.tree_leaves(node.meta.get("example_value"))
    return not any(shape_env.is_symbolic(tuple(each.shape)) for each in leaves if isinstance(each, torch.Tensor))


def is_operator(fn: Any) -> bool:
    """Return whether this is one of torch's own functions on tensors, made of one or more operators."""
    return (
        isinstance(fn, (BuiltinFunctionType, FunctionType))
        and fn.__module__ in OPERATORS
        and fn not in RECURRENT  # not all tracers know their kernels, so these must be decomposed
        and fn not in torch_compat.MODE_CHANGES
    )


@functools.cache
def as_eager(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls the operators that eager calls.

    A tracer decomposes some of them (interpolation, dropout, losses) in Python, with other rounding.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._DisablePythonDispatcher():
            return fn(*args, **kwargs)

    run.__name__ = run.__qualname__ = f"as_eager_{fn.__name__}"
    return run


def without_inference_mode(graph: torch.fx.Graph) -> None:
    """Replace inference mode by no-grad mode in a graph for a tracer.

    Inference mode's effect on tensors is no operator, and its guard holds all dispatch state; a failed trace would
    release it late. Inside of inference mode, grad mode is irrelevant.
    """
    inside: list[bool] = []
    for node in list(graph.nodes):
        if node.target is _enter_inference_mode:
            inside.append(bool(node.args[0]))
            node.target = enter
        elif node.target is _exit_inference_mode:
            inside.pop()
            node.target = torch._C._set_grad_enabled
        elif inside and inside[-1] and node.target is torch._C._set_grad_enabled:
            graph.erase_node(node)


def enter(inference: bool) -> bool:
    """Set the grad mode for (no) inference; return the mode before."""
    before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(not inference)
    return before


def rewrite_bodies(gm: torch.fx.GraphModule, *, exact: bool) -> None:
    """Copy and rewrite the bodies of a graph that is handed to a tracer, which modifies them."""
    for node in gm.graph.find_nodes(op="get_attr"):
        body = getattr(gm, str(node.target), None)
        if isinstance(body, torch.fx.GraphModule):
            graph = copy.deepcopy(body.graph)
            make_traceable(graph, exact=exact)
            setattr(gm, str(node.target), graph_module(body, graph))


def keep_check(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Replace a check by one that a tracer learns from, and an operator that stays in the traced graph."""
    cond, message = (*node.args, "")[:2]
    node.target, node.args = torch._check, (cond,)
    with graph.inserting_after(node):
        graph.call_function(torch.ops.aten._assert_scalar.default, (cond, f"checked: {message}"))


def compare(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Replace `equal` and `allclose` by operators that reduce to one truth value.

    Tensors of different sizes or dtypes are left alone.
    """
    a, b = (each.meta.get("example_value") if isinstance(each, torch.fx.Node) else None for each in node.args[:2])
    if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape:
        return
    with graph.inserting_before(node):
        fn = torch.eq if node.target is torch.equal else torch.isclose
        every = graph.call_method("all", (graph.call_function(fn, node.args, node.kwargs),))
        answer = graph.call_method("item", (every,))
    node.replace_all_uses_with(answer)
    graph.erase_node(node)

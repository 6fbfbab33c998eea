"""Check the specification of a finished graph. Tests run it after every pass."""

from __future__ import annotations

import operator
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from torchdynamo.graph.inputs import InputSource
from torchdynamo.graph.numpy_nodes import of_numpy
from torchdynamo.graph.selective_checkpoint import runs_again

Node = torch.fx.Node

# Classes of callables written in C: builtins, functions of `operator` and `math`, torch's own.
_C_FUNCTIONS = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.GetSetDescriptorType,
    type,
)
_TORCH_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator)
_MODULES = frozenset({"torch", "_operator", "operator", "math", "builtins"})
_CONSTANTS = frozenset(
    {bool, int, float, complex, str, bytes, types.NoneType, types.EllipsisType, range, torch.Size}
    | {torch.dtype, torch.device, torch.layout, torch.memory_format}
)
_META = {
    "placeholder": frozenset({"example_value", "source", "static_input"}),
    "get_attr": frozenset({"example_value", "stack_trace"}),
    "output": frozenset({"example_value", "stack_trace"}),
}
_META_OF_CALLS = frozenset({"example_value", "stack_trace"})


class MalformedGraph(AssertionError):
    """The graph breaks its specification, which is a bug of this package."""


def check(gm: torch.fx.GraphModule) -> None:
    """Raise MalformedGraph with a list of all violations."""
    found = list(problems(gm))
    if found:
        raise MalformedGraph("\n".join([*found, "", str(gm.graph)]))


def problems(gm: torch.fx.GraphModule, *, body: bool = False) -> Iterator[str]:
    """Yield each violation of the specification. The `body` of a higher-order operator has no sources."""
    seen: set[Node] = set()
    nodes = list(gm.graph.nodes)
    if not nodes or nodes[-1].op != "output" or sum(node.op == "output" for node in nodes) != 1:
        yield "the graph must end in its one output"
    for node in nodes:
        for needed in node.all_input_nodes:
            if needed not in seen:
                yield f"{node} uses {needed}, which does not come before it"
        seen.add(node)
        yield from _meta_problems(node, body)
        if not (body and node.op == "output" and node.args and isinstance(node.args[0], Node)):  # a loop's condition
            yield from _RULES.get(node.op, _no_such_op)(gm, node)
        yield from (f"{node} has an argument of type {kind.__name__}" for kind in _foreign(node.args, node.kwargs))
    first_call = next((i for i, node in enumerate(nodes) if node.op != "placeholder"), len(nodes))
    if any(node.op == "placeholder" for node in nodes[first_call:]):
        yield "placeholders must come first"
    origins = [node.meta.get("source") for node in nodes[:first_call]]
    if not body and len(set(origins)) != len(origins):
        yield "two placeholders have the same source"


def is_operator(target: Any) -> bool:
    """Return whether a graph may call a function: it must not hide Python code of the user or a library."""
    if isinstance(target, type) and issubclass(target, torch.Tensor):  # the constructor of a wrapper
        return True
    if isinstance(target, _TORCH_OPERATORS) or type(target) in _C_FUNCTIONS or target is of_numpy:
        return True
    return str(getattr(target, "__module__", None)).partition(".")[0] in _MODULES


def _meta_problems(node: Node, body: bool) -> Iterator[str]:
    keys, wanted = frozenset(node.meta), _META.get(node.op, _META_OF_CALLS)
    if body and node.op == "placeholder":
        wanted = frozenset({"example_value"})
    if keys - wanted:
        yield f"{node} carries {', '.join(sorted(keys - wanted))}"
    if wanted - keys:
        yield f"{node} lacks {', '.join(sorted(wanted - keys))}"
    if not isinstance(node.meta.get("stack_trace", ""), str):
        yield f"the position of {node} is not text"
    if "source" in node.meta and not isinstance(node.meta["source"], InputSource):
        yield f"the source of {node} is a {type(node.meta['source']).__name__}"


def _placeholder(gm: torch.fx.GraphModule, node: Node) -> Iterator[str]:
    if node.target != node.name or not node.name.isidentifier():
        yield f"the placeholder {node} is passed as {node.target}"
    if not node.users:
        yield f"nothing uses the placeholder {node}"


def _call_function(gm: torch.fx.GraphModule, node: Node) -> Iterator[str]:
    if not is_operator(node.target):
        yield f"{node} calls {node.target!r}, which is no operator"


def _call_method(gm: torch.fx.GraphModule, node: Node) -> Iterator[str]:
    first = node.args[0].meta.get("example_value") if node.args and isinstance(node.args[0], Node) else None
    owner = torch.Generator if isinstance(first, torch.Generator) else torch.Tensor
    if not (isinstance(node.target, str) and hasattr(owner, node.target)):
        yield f"{node} calls .{node.target}, which is no method of tensors"


def _get_attr(gm: torch.fx.GraphModule, node: Node) -> Iterator[str]:
    value = operator.attrgetter(str(node.target))(gm)
    if isinstance(value, (torch.Tensor, torch.nn.Parameter)):
        yield f"{node} reads {node.target}, which is a tensor"
    if not isinstance(value, torch.fx.GraphModule):
        return  # an object that a wrapper is made with
    yield from (f"{node.target}: {problem}" for problem in problems(value, body=True))
    for user in node.users:
        if not isinstance(user.target, torch._ops.HigherOrderOperator) and not runs_again(user.target):
            yield f"{user} uses the body {node.target}"


def _output(gm: torch.fx.GraphModule, node: Node) -> Iterator[str]:
    if len(node.args) != 1 or not isinstance(node.args[0], tuple):
        yield "the output is not one tuple"
    elif not all(isinstance(item, Node) for item in node.args[0]):
        yield "the output is not a tuple of nodes"


def _no_such_op(gm: torch.fx.GraphModule, node: Node) -> Iterator[str]:
    yield f"{node} is a {node.op}"


_RULES = {
    "placeholder": _placeholder,
    "call_function": _call_function,
    "call_method": _call_method,
    "get_attr": _get_attr,
    "output": _output,
}


def _foreign(*values: Any) -> Iterator[type]:
    """Yield the types of arguments that are neither nodes, nor constants with a literal form, nor nests of those."""
    for value in values:
        if isinstance(value, Node) or type(value) in _CONSTANTS:
            continue
        if isinstance(value, (tuple, list)):
            yield from _foreign(*value)
        elif isinstance(value, dict):
            yield from _foreign(*value.keys(), *value.values())
        elif isinstance(value, slice):
            yield from _foreign(value.start, value.stop, value.step)
        else:
            yield type(value)

"""Call ATen operators by the cheapest Python callable for each.

`torch.ops.aten.add.Tensor` parses its arguments by the schema, which costs a microsecond more than `torch.add`, the
binding that PyTorch generates for that one operator. A binding serves all overloads of a name and chooses by its
arguments. So each binding is tried on the fake tensors of the very call, and taken if it asks the dispatcher for the
same operator with the same arguments. Operators without such a binding are called without the Python layer around them.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch
import torch.fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

# Namespaces that hold bindings. Some of their names are Python functions around a binding, which return other results
# than the operator: they are not taken.
PLACES: tuple[Any, ...] = (torch, torch.Tensor, torch._C._nn)
BINDINGS = (types.BuiltinFunctionType, types.MethodDescriptorType)


def call_directly(graph: torch.fx.Graph) -> None:
    """Replace the operators of a graph by the cheapest callables for them."""
    for node in graph.nodes:
        if isinstance(node.target, OpOverload):
            node.target = binding(node) or bare(node.target)


def binding(node: torch.fx.Node) -> Callable[..., Any] | None:
    """Return a generated binding that makes exactly the call of this node; None if there is none."""
    op = node.target
    if not isinstance(op, OpOverload) or op.namespace != "aten":
        return None
    found = [found for place in PLACES if isinstance(found := getattr(place, op._opname, None), BINDINGS)]
    if not found:
        return None
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta.get("val"))
    leaves = pytree.tree_leaves((args, kwargs))
    if any(isinstance(each, (torch.SymInt, torch.SymFloat, torch.SymBool)) for each in leaves):
        return None
    wanted = asked(op, args, kwargs)
    if wanted is None or wanted[0] is not op:
        return None
    return next((each for each in found if is_same(asked(each, args, kwargs), wanted)), None)


@functools.cache
def bare(op: OpOverload) -> Callable[..., Any]:
    """Return the dispatcher's own function for an operator, named so that FX's generated code can refer to it."""
    function: Any = functools.partial(op._op)
    function.__module__ = __name__
    function.__name__ = function.__qualname__ = f"{op._opname}_{op._overloadname}"
    function.operator = op
    return function


class Asked(Exception):
    """Carries the first call that reached the dispatcher."""

    def __init__(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self.call = [op, *args, *(item for pair in sorted(kwargs.items()) for item in pair)]


class Ask(TorchDispatchMode):
    """Raises `Asked` at the first call that reaches the dispatcher, so that nothing is computed."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> NoReturn:
        raise Asked(func, args, kwargs or {})


def asked(function: Callable[..., Any], args: Any, kwargs: Any) -> list[Any] | None:
    """Return the first operator that a function dispatches, followed by its arguments; None if there is none."""
    try:
        with torch.no_grad(), torch._C._DisablePythonDispatcher(), Ask():  # which would take operators apart first
            function(*args, **kwargs)
    except Asked as found:
        return found.call
    except (TypeError, RuntimeError, ValueError, IndexError):  # it takes other arguments
        return None
    return None


def is_same(one: list[Any] | None, other: list[Any]) -> bool:
    """Return whether two dispatched calls are equal: tensors by identity, other arguments by type and value."""
    return one is not None and list(map(key, flat(one))) == list(map(key, flat(other)))


def flat(value: Any) -> Iterator[Any]:
    """Yield the leaves of nested lists, each list preceded by its length."""
    if isinstance(value, (list, tuple)):
        yield len(value)
        for each in value:
            yield from flat(each)
    else:
        yield value


def key(value: Any) -> tuple[type, Any]:
    """Return a key by which arguments of two calls are compared: identity for tensors, else type and `repr`."""
    return type(value), id(value) if isinstance(value, torch.Tensor) else repr(value)

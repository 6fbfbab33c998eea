"""Calls of ATen operators, by the shortest way that Python has to each.

`torch.ops.aten.add.Tensor` finds its arguments by the schema, one after the other, for any operator there is: a
microsecond more than the binding `torch.add`, which PyTorch generates for that operator alone. A binding stands for all
overloads of a name, and chooses by the arguments. So it is tried on the fake tensors of the very call, and taken if the
operator that the dispatcher is asked for, and all of its arguments, are the same. What has none is called without the
Python around it.
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

# Where bindings are. FX's code calls them by these names, some of which stand for Python functions around the binding,
# with other results than the operator has.
PLACES: tuple[Any, ...] = (torch, torch.Tensor, torch._C._nn)
BINDINGS = (types.BuiltinFunctionType, types.MethodDescriptorType)


def call_directly(graph: torch.fx.Graph) -> None:
    """Replace the operators of a graph by the shortest ways to call them."""
    for node in graph.nodes:
        if isinstance(node.target, OpOverload):
            node.target = binding(node) or bare(node.target)


def binding(node: torch.fx.Node) -> Callable[..., Any] | None:
    """Return a binding that makes the call of this node; None if there is none."""
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
    """Return the dispatcher's own function for an operator, with a name for the code of graphs."""
    function: Any = functools.partial(op._op)
    function.__module__ = __name__
    function.__name__ = function.__qualname__ = f"{op._opname}_{op._overloadname}"
    return function


class Asked(Exception):
    """The first call that got to the dispatcher."""

    def __init__(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self.call = [op, *args, *(item for pair in sorted(kwargs.items()) for item in pair)]


class Ask(TorchDispatchMode):
    """Raises the first call that gets to the dispatcher: nothing is computed."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> NoReturn:
        raise Asked(func, args, kwargs or {})


def asked(function: Callable[..., Any], args: Any, kwargs: Any) -> list[Any] | None:
    """Return the operator that a function asks for first, with its arguments; None if it asks for none."""
    try:
        with torch.no_grad(), torch._C._DisablePythonDispatcher(), Ask():  # which would take operators apart first
            function(*args, **kwargs)
    except Asked as found:
        return found.call
    except (TypeError, RuntimeError, ValueError, IndexError):  # it takes other arguments
        return None
    return None


def is_same(one: list[Any] | None, other: list[Any]) -> bool:
    """Return whether these are one call: tensors by identity, all else by type and value."""
    return one is not None and list(map(key, flat(one))) == list(map(key, flat(other)))


def flat(value: Any) -> Iterator[Any]:
    """Walk through lists in lists, with their lengths."""
    if isinstance(value, (list, tuple)):
        yield len(value)
        for each in value:
            yield from flat(each)
    else:
        yield value


def key(value: Any) -> tuple[type, Any]:
    """Return what stands for a value where calls are compared."""
    return type(value), id(value) if isinstance(value, torch.Tensor) else repr(value)

"""Specialize a graph with symbolic sizes: put constants in the place of its symbols."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx
from torch.fx.node import map_aggregate

from torchdynamo.graph import shape_env
from torchdynamo.graph.inputs import InputSource
from torchdynamo.graph.modules import graph_module
from torchdynamo.graph.numbers import PYTHON, SYMBOLIC
from torchdynamo.graph.sizes import Sizes
from torchdynamo.graph.torch_compat import is_layered

_SERVING = "torchdynamo_static_graphs"
Values = Mapping[Any, Any]  # symbol -> its value, an int or (carried by a tensor) a float


class NumberPlace(NamedTuple):
    """Location of a symbol's value among a graph's inputs: an input, its content, or one of its sizes or strides."""

    position: int
    how: str
    dim: int

    def read(self, args: Sequence[Any]) -> Any:
        value = args[self.position]
        if self.how == "itself":
            return int(value)
        if self.how == "item":
            return value.item()
        return int(value.size(self.dim) if self.how == "size" else value.stride(self.dim))


def places(gm: torch.fx.GraphModule, sizes: Sizes | None, floats: bool = False) -> dict[Any, NumberPlace]:
    """Return, for each symbol that exists before the graph runs, where its value is found; with
    `floats`, floats too.
    """
    found: dict[Any, NumberPlace] = {}
    for position, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        number = node.meta.get("example_value")
        if isinstance(number, torch.SymInt):
            found.setdefault(symbol_of(number), NumberPlace(position, "itself", 0))
        if floats and is_boxed(node):
            items = [user.meta["example_value"] for user in node.users if user.target is torch.Tensor.item]
            found.update((symbol_of(each), NumberPlace(position, "item", 0)) for each in items)
        layout = None if sizes is None else sizes.layouts.get(node.name)
        for how, numbers in (("size", layout.size), ("stride", layout.stride)) if layout is not None else ():
            for dim, each in enumerate(numbers):
                if sizes is not None and isinstance(each, torch.SymInt) and symbol_of(each) in sizes.numbers.entries:
                    found.setdefault(symbol_of(each), NumberPlace(position, how, dim))
    return found


def is_boxed(node: torch.fx.Node) -> bool:
    """Return whether an input is a tensor that only carries a float into the graph."""
    source = node.meta.get("source")
    return isinstance(source, InputSource) and source.boxed


def symbol_of(number: torch.SymInt | torch.SymFloat) -> Any:
    """Return the symbol that a number was created as, without later replacements."""
    return number.node._expr


def value_of(number: Any, values: Values) -> Any:
    """Return a number at these values; None if it depends on other symbols."""
    kind = PYTHON.get(type(number))
    if kind is None:
        return number
    if number.node.expr in values:
        return kind(values[number.node.expr])
    expr = put_in(number.node.expr, values)
    return None if expr.free_symbols else kind(expr)


def put_in(expr: Any, values: Values) -> Any:
    """Return a sympy expression with symbols replaced by values."""
    from sympy import Float, Integer  # type: ignore[import-untyped]

    return expr.xreplace(
        {symbol: (Integer if isinstance(value, int) else Float)(value) for symbol, value in values.items()}
    )


def at_sizes(gm: torch.fx.GraphModule, values: Values) -> torch.fx.GraphModule:
    """Return the graph with symbols replaced by values; it still takes the inputs that are numbers, unused."""
    graph = copy.deepcopy(gm.graph)
    known: dict[torch.fx.Node, Any] = {}
    for node in graph.nodes:
        node.args = map_aggregate(node.args, lambda each: known.get(each, each))  # type: ignore[arg-type]
        node.kwargs = map_aggregate(node.kwargs, lambda each: known.get(each, each))  # type: ignore[arg-type]
        number = node.meta.get("example_value")
        if isinstance(number, SYMBOLIC) and value_of(number, values) is not None:
            known[node] = value_of(number, values)
        elif isinstance(number, SYMBOLIC) and node.op == "call_function" and not node.all_input_nodes:
            known[node] = node.target(*node.args, **node.kwargs)
    for node in reversed(list(known)):
        if node.op != "placeholder":
            graph.erase_node(node)
    fixed = graph_module(gm, graph)
    fixed.meta = {name: value for name, value in gm.meta.items() if name != _SERVING and not isinstance(value, Sizes)}
    return fixed


def serving(gm: torch.fx.GraphModule) -> dict[tuple[Any, ...], torch.fx.GraphModule]:
    """Return the graphs that serve the calls of a graph with symbols, by the values of its symbols; to be added to."""
    found: dict[tuple[Any, ...], torch.fx.GraphModule] = gm.meta.setdefault(_SERVING, {})
    return found


def specialize_examples(gm: torch.fx.GraphModule, values: Values) -> None:
    """Replace the example of each tensor by one of the sizes at these values, for readers that expect constants.
    Examples no longer share memory.
    """
    for node in gm.graph.nodes:
        example = node.meta.get("example_value")
        if isinstance(example, torch.Tensor) and not is_layered(example):
            node.meta = {**node.meta, "example_value": as_of(example, values)}


def as_of(example: torch.Tensor, values: Values) -> torch.Tensor:
    """Return a fake tensor with the sizes and strides that this one has at these values, in memory of its own.

    Returns the tensor itself if these do not depend on the values, or depend on further symbols.
    """
    size, stride = ([value_of(each, values) for each in part] for part in (example.size(), example.stride()))
    if None in (*size, *stride) or not shape_env.is_symbolic((tuple(example.size()), example.stride())):
        return example
    with example.fake_mode:  # type: ignore[attr-defined]
        return torch.empty_strided(size, stride, dtype=example.dtype, device=example.device)


def without_numbers(gm: torch.fx.GraphModule) -> list[int]:
    """Remove unused inputs that are numbers; return the positions of the remaining inputs."""
    nodes = list(gm.graph.find_nodes(op="placeholder"))
    for node in nodes:
        if (isinstance(node.meta.get("example_value"), SYMBOLIC) or is_boxed(node)) and not node.users:
            gm.graph.erase_node(node)
    gm.recompile()
    remaining = set(gm.graph.find_nodes(op="placeholder"))
    return [position for position, node in enumerate(nodes) if node in remaining]

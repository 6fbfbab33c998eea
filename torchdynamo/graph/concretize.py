"""A graph whose sizes vary, at some sizes: the same with numbers in it where it had symbols."""

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

Values = Mapping[Any, Any]  # by symbol: an int, or a float that travels in a tensor


class NumberPlace(NamedTuple):
    """Where a number is found among the inputs of a graph: an input itself, what it holds, or its size or stride."""

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
    """Return, by symbol, where each size of a graph is found that exists before it runs; with `floats`, those too."""
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
    """Return whether an input only brings a float to the graph."""
    source = node.meta.get("source")
    return isinstance(source, InputSource) and source.boxed


def symbol_of(number: torch.SymInt | torch.SymFloat) -> Any:
    """Return what it was made as, before anything was learned of it."""
    return number.node._expr


def value_of(number: Any, values: Values) -> Any:
    """Return a number at these sizes; None if it depends on more than they."""
    kind = PYTHON.get(type(number))
    if kind is None:
        return number
    if number.node.expr in values:
        return kind(values[number.node.expr])
    expr = put_in(number.node.expr, values)
    return None if expr.free_symbols else kind(expr)


def put_in(expr: Any, values: Values) -> Any:
    """Return an expression of symbols with these for them."""
    from sympy import Float, Integer  # type: ignore[import-untyped]

    return expr.xreplace(
        {symbol: (Integer if isinstance(value, int) else Float)(value) for symbol, value in values.items()}
    )


def at_sizes(gm: torch.fx.GraphModule, values: Values) -> torch.fx.GraphModule:
    """Return the graph with these numbers as constants. It still takes the inputs that are numbers, and reads none."""
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
    fixed.meta = {name: value for name, value in gm.meta.items() if not isinstance(value, Sizes)}
    return fixed


def settle_examples(gm: torch.fx.GraphModule, values: Values) -> None:
    """Make the example of each tensor in a graph what it is at these values: who reads sizes there may not know that
    they vary. Examples no longer share memory."""
    for node in gm.graph.nodes:
        example = node.meta.get("example_value")
        if isinstance(example, torch.Tensor) and not is_layered(example):
            node.meta = {**node.meta, "example_value": as_of(example, values)}


def as_of(example: torch.Tensor, values: Values) -> torch.Tensor:
    """Return a fake tensor whose sizes and strides are what they are at these values, in memory of its own.

    The fake tensor itself, if they do not depend on the values, or on more than they.
    """
    size, stride = ([value_of(each, values) for each in part] for part in (example.size(), example.stride()))
    if None in (*size, *stride) or not shape_env.is_symbolic((tuple(example.size()), example.stride())):
        return example
    with example.fake_mode:  # type: ignore[attr-defined]
        return torch.empty_strided(size, stride, dtype=example.dtype, device=example.device)


def without_numbers(gm: torch.fx.GraphModule) -> list[int]:
    """Take away the inputs that are numbers, which nothing uses; the positions of those that stay."""
    nodes = list(gm.graph.find_nodes(op="placeholder"))
    for node in nodes:
        if (isinstance(node.meta.get("example_value"), SYMBOLIC) or is_boxed(node)) and not node.users:
            gm.graph.erase_node(node)
    gm.recompile()
    remaining = set(gm.graph.find_nodes(op="placeholder"))
    return [position for position, node in enumerate(nodes) if node in remaining]

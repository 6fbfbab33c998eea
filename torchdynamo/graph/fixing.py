"""A graph whose sizes vary, at some sizes: the same with numbers in it where it had symbols."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx
from torch.fx.node import map_aggregate

from torchdynamo.graph.numbers import PYTHON, SYMBOLIC
from torchdynamo.graph.sizes import Sizes

Values = Mapping[Any, int]  # by symbol


class Place(NamedTuple):
    """Where a number is found among the inputs of a graph: an input itself, or a tensor's size or stride."""

    position: int
    how: str
    dim: int

    def read(self, args: Sequence[Any]) -> int:
        value = args[self.position]
        if self.how == "itself":
            return int(value)
        return int(value.size(self.dim) if self.how == "size" else value.stride(self.dim))


def places(gm: torch.fx.GraphModule, sizes: Sizes) -> dict[Any, Place]:
    """By symbol: where it is found."""
    found: dict[Any, Place] = {}
    for position, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        number = node.meta.get("example_value")
        if isinstance(number, torch.SymInt):
            found.setdefault(symbol_of(number), Place(position, "itself", 0))
        layout = sizes.layouts.get(node.name)
        for how, numbers in (("size", layout.size), ("stride", layout.stride)) if layout is not None else ():
            for dim, each in enumerate(numbers):
                if isinstance(each, torch.SymInt) and symbol_of(each) in sizes.numbers.entries:
                    found.setdefault(symbol_of(each), Place(position, how, dim))
    return found


def symbol_of(number: torch.SymInt) -> Any:
    """What it was made as, before anything was learned of it."""
    return number.node._expr


def value_of(number: Any, values: Values) -> Any:
    """A number at these sizes; None if it depends on more than they."""
    kind = PYTHON.get(type(number))
    if kind is None:
        return number
    expr = put_in(number.node.expr, values)
    return None if expr.free_symbols else kind(expr)


def put_in(expr: Any, values: Values) -> Any:
    """An expression of symbols with these for them."""
    from sympy import Integer  # type: ignore[import-untyped]

    return expr.xreplace({symbol: Integer(value) for symbol, value in values.items()})


def at_sizes(gm: torch.fx.GraphModule, values: Values) -> torch.fx.GraphModule:
    """The graph where its numbers are these; it still takes the inputs that are numbers, and looks at none."""
    graph = copy.deepcopy(gm.graph)
    known: dict[torch.fx.Node, Any] = {}
    for node in graph.nodes:
        node.args = map_aggregate(node.args, lambda each: known.get(each, each))  # type: ignore[arg-type]
        node.kwargs = map_aggregate(node.kwargs, lambda each: known.get(each, each))  # type: ignore[arg-type]
        number = node.meta.get("example_value")
        if isinstance(number, SYMBOLIC) and value_of(number, values) is not None:
            known[node] = value_of(number, values)
    for node in reversed(list(known)):
        if node.op != "placeholder":
            graph.erase_node(node)
    fixed = torch.fx.GraphModule(gm, graph)
    fixed.meta = {name: value for name, value in gm.meta.items() if not isinstance(value, Sizes)}
    return fixed


def without_numbers(gm: torch.fx.GraphModule) -> list[int]:
    """Take away the inputs that are numbers, which nothing uses; the positions of those that stay."""
    nodes = list(gm.graph.find_nodes(op="placeholder"))
    for node in nodes:
        if isinstance(node.meta.get("example_value"), SYMBOLIC) and not node.users:
            gm.graph.erase_node(node)
    gm.recompile()
    remaining = set(gm.graph.find_nodes(op="placeholder"))
    return [position for position, node in enumerate(nodes) if node in remaining]

"""Add nodes to a graph, with the examples that other passes look at."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from torchdynamo.graph.passes.attention.calls import example, read
from torchdynamo.graph.passes.attention.form import Miss, Operand
from torchdynamo.graph.passes.attention.products import same, sizes
from torchdynamo.graph.passes.attention.scores import number

Node = torch.fx.Node


class NodeWriter:
    """Adds nodes to a graph before a given one, with examples."""

    def __init__(self, graph: torch.fx.Graph, before: Node) -> None:
        self.graph = graph
        self.before = before
        self.trace = before.meta.get("stack_trace", "")
        self.scale = 1.0  # of queries and keys, which is left to the operator

    def call(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
        """Add a call of a function."""
        given, named = torch.fx.node.map_arg((args, kwargs), example)
        mode = next(each.fake_mode for each in pytree.tree_leaves(given) if isinstance(each, FakeTensor))
        quiet = contextlib.nullcontext() if mode.shape_env is None else mode.shape_env.suppress_guards()
        with mode, quiet, torch.no_grad(), torch._C._DisableAutocast():
            made = target(*given, **named)
        with self.graph.inserting_before(self.before):
            node = self.graph.call_function(target, args, kwargs)
        node.meta = {"example_value": made, "stack_trace": self.trace}
        return node

    def size(self, node: Node, dim: int) -> Any:
        """Return a size of a node's tensor, as a number or a node."""
        found = example(node).shape[dim]
        if type(found) is int:
            return found
        with self.graph.inserting_before(self.before):
            made = self.graph.call_method("size", (node, dim))
        made.meta = {"example_value": found, "stack_trace": self.trace}
        return made

    def arranged(self, operand: Operand) -> Node:
        """Return an operand with its dimensions as the product wants them."""
        node, dims = operand
        if dims is None:
            return node
        kept = tuple(each for each in dims if each is not None)
        if kept != tuple(range(len(kept))):
            node = self.call(torch.permute, node, kept)
        for at, each in enumerate(dims):
            if each is None:
                node = self.call(torch.unsqueeze, node, at)
        return node

    def in_four(self, node: Node, at: tuple[Any, ...], lead: tuple[Any, ...]) -> Node:
        """Return a tensor that broadcasts to [*at, _, _], where `at` is reshaped to `lead`, with two leading sizes."""
        while example(node).dim() < 2:
            node = self.call(torch.unsqueeze, node, 0)
        own = sizes(node)[:-2]
        alone = all(type(each) is int and each == 1 for each in own)
        if (not same(at, lead) or len(lead) > 2) and not alone:
            whole = all(type(each) is int for each in (*at, *lead))
            if not whole:
                raise Miss("sizes vary that are reshaped", node)
            rest = [self.size(node, -2), self.size(node, -1)]
            node = self.call(torch.Tensor.expand, node, (*at, *rest))
            four = lead if len(lead) < 3 else (math.prod(lead[:-1]), lead[-1])
            if at != four:
                node = self.call(torch.reshape, node, (*four, *rest))
        elif len(own) > 2:
            node = self.call(torch.flatten, node, 0, len(own) - 2)
        while example(node).dim() < 4:
            node = self.call(torch.unsqueeze, node, 0)
        return node

    def packed(self, node: Node, *, own: bool) -> Node:
        """Return a tensor without gaps, rows first; in memory of its own, if that is wanted."""
        if own:
            return self.call(torch.clone, node, memory_format=torch.contiguous_format)
        return self.call(torch.Tensor.contiguous, node)

    def broadcast(self, node: Node, lead: tuple[Any, ...]) -> Node:
        """Expand a tensor of four dimensions to two leading sizes."""
        if same(sizes(node)[:2], lead):
            return node
        if not all(type(each) is int for each in lead):
            raise Miss("batches of different sizes that vary", node)
        return self.call(torch.Tensor.expand, node, (*lead, -1, -1))

    def of_dtype(self, node: Node, dtype: torch.dtype, *, exact: bool) -> Node:
        """Convert a factor. exact: only undo a conversion; raise Miss for one that has more precision."""
        if example(node).dtype == dtype:
            return node
        if not exact:
            return self.call(torch.Tensor.to, node, dtype)
        call = read(node)
        if call is not None and call.name == "cast" and example(call["input"]).dtype == dtype:
            return call["input"]
        if call is not None and call.name == "transpose":
            return self.call(
                torch.transpose, self.of_dtype(call["input"], dtype, exact=True), call["dim0"], call["dim1"]
            )
        if call is not None and call.name == "permute":
            return self.call(torch.permute, self.of_dtype(call["input"], dtype, exact=True), call["dims"])
        factor = number(call["other"]) if call is not None and call.name in ("mul", "div") else None
        if call is not None and factor:
            self.scale *= factor if call.name == "mul" else 1.0 / factor
            return self.of_dtype(call["input"], dtype, exact=True)
        raise Miss("queries and keys have more precision than the weights", node)

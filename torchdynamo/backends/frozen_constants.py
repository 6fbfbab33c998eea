"""Keep the constants that Inductor makes of parameters from being results, and from outliving what it has compiled.

It makes some where its setting "freezing" is on. It returns a constant as it is, so that a program that writes to a
result would find the change in the next call's. And it keeps each module of generated code, whose attributes the
constants are, for the life of the process.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.fx

from torchdynamo.graph.numbers import SYMBOLIC

InnerCompile = Callable[..., Any]
NUMBERS = (int, float, bool, *SYMBOLIC)

_library = torch.library.Library("torchdynamo", "FRAGMENT")
_library.define("fresh(Tensor values) -> Tensor")


def fresh(values: torch.Tensor) -> torch.Tensor:
    """Return a copy that lies in memory as the original does, where elements may share a place."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(values.shape, values.stride(), strict=True))
    span = values.as_strided((extent if values.numel() else 0,), (1,))
    return span.clone().as_strided(values.shape, values.stride(), 0)


_library.impl("fresh", fresh, "CompositeExplicitAutograd")
_library.impl("fresh", lambda values: values.new_empty_strided(values.shape, values.stride()), "Meta")


def kept_apart(inner_compile: InnerCompile) -> InnerCompile:
    """Return Inductor's function that compiles one graph, with frozen constants that are no results and die with it."""

    @functools.wraps(inner_compile)
    def compile_(gm: torch.fx.GraphModule, *args: Any, **options: Any) -> Any:
        from torch import _inductor
        from torch._inductor.codecache import PyCodeCache

        settings: Any = _inductor.config
        if not settings.freezing:
            return inner_compile(gm, *args, **options)
        copy_constant_results(gm.graph)
        known = set(map(id, PyCodeCache.modules))
        made = inner_compile(gm, *args, **options)
        for module in list(PyCodeCache.modules):
            if id(module) not in known and has_constants(module):
                forget(module, PyCodeCache.modules)
        return made

    return compile_


def copy_constant_results(graph: torch.fx.Graph) -> None:
    """Copy each result of an ATen graph that is computed of constants, and of no more of an input than its sizes."""
    moving: dict[torch.fx.Node, bool] = {}  # of what is no number, whether it is computed of an input
    for node in graph.nodes:
        before = [moving[each] for each in node.all_input_nodes if each in moving]
        if node.op == "output" or isinstance(node.meta.get("val"), NUMBERS):
            continue
        if node.op in ("placeholder", "get_attr"):
            moving[node] = node.op == "placeholder"
        elif before:
            moving[node] = any(before)
    output = graph.output_node()
    for result in [each for each in output.all_input_nodes if moving.get(each) is False]:
        with graph.inserting_before(output):
            copied = graph.call_function(torch.ops.torchdynamo.fresh.default, (result,))
        copied.meta = dict(result.meta)
        output.replace_input_with(result, copied)


def has_constants(module: ModuleType) -> bool:
    """Return whether attributes of a module of generated code are tensors."""
    return any(isinstance(each, torch.Tensor) for each in vars(module).values())


def forget(module: ModuleType, modules: list[ModuleType]) -> None:
    """Leave a module of generated code to its functions, which have its attributes."""
    with contextlib.suppress(ValueError):
        modules.remove(module)
    if sys.modules.get(module.__name__) is module:
        del sys.modules[module.__name__]

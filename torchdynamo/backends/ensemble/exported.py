"""Translate a captured graph to the ATen operators that other runtimes convert, by torch.export.

Nothing is captured here: the graph has been captured already, and export only renames its operators. Layers keep their
captured form (a linear layer, an LSTM, an attention), because runtimes have such operators, too.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx
from torch.utils import _pytree as pytree

from torchdynamo.backends.ensemble.member import Declined
from torchdynamo.backends.ensemble.requirements import idle_switches
from torchdynamo.backends.ensemble.subgraph import FrozenGraph, Subgraph
from torchdynamo.backends.preserve import RandomState
from torchdynamo.graph.modules import graph_module

_LOGGERS = ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")
_BUILDING = threading.RLock()
_MADE: weakref.WeakKeyDictionary[Subgraph, Exported] = weakref.WeakKeyDictionary()


class Layout(NamedTuple):
    """Layout of a result's memory, as eager would allocate it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    is_contiguous: bool

    @classmethod
    def of(cls, example: torch.Tensor) -> Layout:
        return cls(tuple(example.shape), example.stride(), example.dtype, example.is_contiguous())


class Exported(NamedTuple):
    """A graph as an exported program whose results are tensors only, each of them once."""

    program: Any
    """The `ExportedProgram`. It writes nothing in place; constants are among its state."""
    plain: Callable[..., Any]
    """The captured graph, which takes the same inputs."""
    outputs: list[Layout]
    rebuild: Callable[..., Any]
    """Called with the program's results, returns the graph's: nested as they were, numbers and None among them."""


def exported(subgraph: Subgraph) -> Exported:
    """Return the exported form of a graph, made once for each Subgraph. Raises Declined if export fails.

    If the subgraph has constants, the program takes the inputs at `Subgraph.moving` only.
    """
    with _BUILDING:
        found = _MADE.get(subgraph)
        if found is None:
            found = _MADE[subgraph] = _export(subgraph)
        return found


@contextlib.contextmanager
def undisturbed_build() -> Iterator[None]:
    """Convert without gradients, without messages, one thread at a time; random numbers go on where they were."""
    with _BUILDING, warnings.catch_warnings(), _silent_loggers(), torch.inference_mode(False), torch.no_grad():
        warnings.simplefilter("ignore")
        random = RandomState()
        try:
            yield
        finally:
            random.restore()


@contextlib.contextmanager
def _silent_loggers() -> Iterator[None]:
    """Silence the loggers of converters, and this thread's records at the root logger, which is left as it was."""
    levels = {logging.getLogger(name): logging.getLogger(name).level for name in _LOGGERS}
    root, thread = logging.getLogger(), threading.get_ident()
    handlers = [*root.handlers]

    def is_elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != thread

    root.addFilter(is_elsewhere)
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
        root.removeFilter(is_elsewhere)
        if not handlers:  # `logging.warning` installs one where there is none
            root.handlers.clear()


def _export(subgraph: Subgraph) -> Exported:
    idle = {node.name for node in idle_switches(subgraph.gm)}  # which depends on the modes of now
    with undisturbed_build():
        frozen = subgraph.frozen() if subgraph.static else FrozenGraph(subgraph.gm, subgraph.example_inputs)
        module = graph_module(frozen.module, copy.deepcopy(frozen.module.graph))
        for node in reversed(module.graph.nodes):
            if node.name in idle:
                module.graph.erase_node(node)
        output = module.graph.output_node()
        results = [each for each in pytree.tree_leaves(output.args[0]) if isinstance(each, torch.fx.Node)]
        layouts = [Layout.of(each.meta["example_value"]) for each in results]
        if not results:
            raise Declined("no result of the graph is a tensor")
        if any(0 in layout.shape for layout in layouts) or not all(each.numel() for each in frozen.inputs):
            raise Declined("an input or a result has no elements")
        rebuild = _rebuilder(output.args[0], results)
        output.args = (tuple(results),)
        module.recompile()
        try:
            program = _program(module, frozen.inputs)
        except Exception as error:
            raise Declined(f"it cannot be exported: {last_line(error)}") from error
        return Exported(program, frozen.module.forward, layouts, rebuild)


def _program(module: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Any:
    """Export a module. The inputs are replaced: one tensor that is given twice would become one input."""
    alike = [torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=each.device) for each in inputs]
    program = torch.export.export(module, tuple(alike), strict=False)
    if _writes(program):
        program = program.run_decompositions({})
    _drop_empty_parts(program)
    return program


def _rebuilder(results: Any, tensors: list[torch.fx.Node]) -> Callable[..., Any]:
    """Return the function of the tensors that nests them as the results are."""
    graph = torch.fx.Graph()
    inputs = {node: graph.placeholder(f"result_{i}") for i, node in enumerate(tensors)}
    graph.output(torch.fx.node.map_arg(results, inputs.__getitem__))
    return graph_module(torch.nn.Module(), graph).forward


def _writes(program: Any) -> bool:
    """Return whether an operator of the program writes to its arguments."""
    return any(
        isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        for node in program.graph.nodes
    )


def _drop_empty_parts(program: Any) -> None:
    """Leave tensors without elements out of concatenations: caches of attention begin with one, without a shape."""
    for node in program.graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default):
        parts = node.args[0]
        filled = [each for each in parts if each.meta["val"].numel()]
        if filled and len(filled) < len(parts):
            node.args = (filled, *node.args[1:])
    program.graph_module.recompile()


def last_line(error: Exception) -> str:
    """Return the class and the last line of an error's message, which is where converters say what was wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ": ".join([type(error).__name__, *lines[-1:]])

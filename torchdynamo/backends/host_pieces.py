"""Split graphs that run NumPy, or make generators, or have backwards that look at the program when they run.

A backend gets what is torch's between, and the rest runs as it is. Each piece of torch's has its own backward.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch.fx

from torchdynamo import _native
from torchdynamo.backends.failed_graph import failed_graph
from torchdynamo.backends.preserve import mutated_positions
from torchdynamo.backends.registry import Backend, backend_name, is_from_here
from torchdynamo.backends.run import EagerOnError
from torchdynamo.backends.split_backward import SplitGraph
from torchdynamo.graph.custom_backward import CannotBeTraced
from torchdynamo.graph.host_nodes import as_they_are, has_host_bodies, may_cross
from torchdynamo.graph.mutation import changes_modes
from torchdynamo.graph.passes.stages import GETTERS, can_be_cut, cut
from torchdynamo.graph.torch_compat import MODE_CHANGES
from torchdynamo.graph.tracebacks import AS_CAPTURED

CompilePart = Callable[..., Callable[..., Any]]


def between_host_nodes(backend: Backend, compile_part: CompilePart) -> Backend:
    """Return a backend for graphs with nodes that run as they are, which has the backend compile the pieces between.

    compile_part: compiles a graph by a backend. The result declines graphs that cannot be cut.
    """

    @functools.wraps(backend)
    def pieces(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any] | None:
        alone = as_they_are(gm.graph)
        after = seams(gm.graph, alone)
        if not can_be_cut(gm.graph, after, may_cross) or keeps_modes(gm) or has_host_bodies(gm):
            return None
        stages = cut(gm, [node.name for node in after])
        for stage in stages:  # whose errors are the program's, and which never run again for an error of a later one
            code = stage.module.forward.__code__
            AS_CAPTURED[id(code)] = code
        names = {node.name for node in alone}
        return SplitGraph(gm, stages, compile_piece, lambda node: node.op != "placeholder" and node.name in names)

    def compile_piece(gm: torch.fx.GraphModule, given: Sequence[Any]) -> Callable[..., Any] | None:
        if not are_apart(gm, given):
            return None
        eager, advice = gm.forward, failed_graph(gm, backend).advice
        made = compile_part(gm, given, backend=backend)
        return EagerOnError(made, eager, backend_name(backend), advice)

    pieces.leaves_inputs_alone = True  # type: ignore[attr-defined] # each piece sees to its own
    return pieces


def whole_if_untraced(backend: Backend, compile_part: CompilePart) -> Backend:
    """Return a backend that gets graphs with backwards that look at the program whole, if it runs them as they are.

    A backend of this package's gets the pieces between, and so does one that has AOTAutograd trace the whole.
    """
    pieces = between_host_nodes(backend, compile_part)
    if is_from_here(backend):
        return pieces

    @functools.wraps(backend)
    def whole_or_pieces(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any] | None:
        try:
            return backend(gm, example_inputs)
        except CannotBeTraced:
            return pieces(gm, example_inputs)

    return whole_or_pieces


def seams(graph: torch.fx.Graph, alone: Collection[torch.fx.Node]) -> list[torch.fx.Node]:
    """Return the nodes after which pieces begin that a backend compiles, or that run as they are, which are `alone`."""
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    return [one for one, other in itertools.pairwise(nodes) if (one in alone) != (other in alone)]


def are_apart(gm: torch.fx.GraphModule, given: Sequence[Any]) -> bool:
    """Return whether the inputs that a piece writes to share no memory with others: backends assume that."""
    at = frozenset(mutated_positions(gm))
    groups = [[], []]  # type: ignore[var-annotated]
    for index, each in enumerate(given):
        if isinstance(each, torch.Tensor):
            groups[index in at].append(each)
    return not groups[1] or _native.tensors_apart(tuple(groups[1]), tuple(groups[0]))


def keeps_modes(gm: torch.fx.GraphModule) -> bool:
    """Return whether a graph changes modes that no piece of it could set again."""
    return changes_modes(gm) and any(
        node.target in MODE_CHANGES and node.target not in GETTERS for node in gm.graph.nodes
    )

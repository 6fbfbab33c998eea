"""Split graphs whose parts need separate backwards, and compile the parts one by one.

Everything that AOTAutograd compiles together has one backward, which frees all saved tensors once it has run. A program
that trains two networks in turns, each with its own loss, runs one backward after the other. So the graph is cut
between strands that have nothing in common. Recurrent layers in training, dropout, and draws from the program's own
generators run in eager, because AOTAutograd does not know all of their kernels; the parts before and after are
compiled.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
import torch.fx
from torch.utils import _pytree as pytree

from torchdynamo.backends.preserve import is_for_eager
from torchdynamo.backends.registry import takes_wrappers
from torchdynamo.graph.history import strands
from torchdynamo.graph.passes.stages import GETTERS, GraphStage, can_be_cut, cut
from torchdynamo.graph.recurrent import draws_from_a_generator, drops, runs_as_it_is
from torchdynamo.graph.torch_compat import CLOSERS, MODE_CHANGES, OPENERS

Run = Callable[..., Any]
B = TypeVar("B", bound=Callable[..., Any])


def split_into_parts(backend: B) -> B:
    """Wrap a backend by AOTAutograd so that it gets the parts of a graph, each of which can have a backward of its own.

    It takes tensors of wrapper subclasses.
    """

    @takes_wrappers
    @functools.wraps(backend)
    def whole_or_pieces(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Run | None:
        dropping = any(drops(node) or draws_from_a_generator(node) for node in gm.graph.nodes)
        wanted = (dropping or torch.is_grad_enabled()) and not is_for_eager(gm, example_inputs)
        after = places(gm) if wanted else []
        if not after:
            whole: Run | None = None if dropping else backend(gm, example_inputs, **options)
            return whole
        return SplitGraph(gm, cut(gm, after), functools.partial(backend, **options))

    return whole_or_pieces  # type: ignore[return-value]


def places(gm: torch.fx.GraphModule) -> list[str]:
    """Return the names of the nodes after which to cut; empty if no cut is needed or possible."""
    ways = whole_layers(gm.graph, strands(gm))
    after: list[torch.fx.Node] = []
    previous, current = None, None  # the last node; the label of its part: a strand, or a recurrent layer
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        layer = isinstance(current, torch.fx.Node)
        if runs_as_it_is(node):
            label = node
        elif layer and node.target is operator.getitem and node.args[0] is current:
            label = current
        else:
            label = ways.get(node, None if layer else current)
        if previous is not None and label != current and (current is not None or label is node):
            after.append(previous)
        previous, current = node, label
    able = can_be_cut(gm.graph, after) and not any(
        node.target in MODE_CHANGES and node.target not in GETTERS for node in gm.graph.nodes
    )
    return [node.name for node in after] if able else []


def whole_layers(graph: torch.fx.Graph, ways: dict[torch.fx.Node, int]) -> dict[torch.fx.Node, int]:
    """Return the strands of nodes, with all nodes between entering and leaving a torch.func transform on one."""
    inside: list[torch.fx.Node] = []
    depth = 0
    for node in graph.nodes if ways else ():
        depth += (node.target in OPENERS) - (node.target in CLOSERS)
        if depth or inside:
            inside.append(node)
        if inside and not depth:
            met = {ways[each] for each in inside if each in ways}
            if met:
                ways = {each: min(met) if way in met else way for each, way in ways.items()}
                ways.update(dict.fromkeys(inside, min(met)))
            inside = []
    return ways


class Result(NamedTuple):
    """Stands for a result of the whole graph, by the name of its node."""

    name: str


class SplitGraph:
    """Runs the parts of a graph in order. Each is compiled in the first call, when its inputs have been computed.

    as_it_is: tells whether a node is one that no backend gets; it runs in eager, with its part.
    """

    not_stored = "the graph is compiled in parts, each when it first runs"

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        stages: list[GraphStage],
        backend: Callable[..., Run | None],
        as_it_is: Callable[[torch.fx.Node], bool] = runs_as_it_is,
    ) -> None:
        self.stages, self.backend, self.as_it_is = stages, backend, as_it_is
        self.compiled: list[Run | None] = [None] * len(stages)
        self.inputs = [node.name for node in gm.graph.find_nodes(op="placeholder")]
        (output,) = gm.graph.find_nodes(op="output")
        self.results = torch.fx.node.map_arg(output.args[0], lambda node: Result(node.name))
        last = {name: at for at, stage in enumerate(stages) for name in (*stage.results, *stage.inputs)}
        wanted = {node.name for node in output.all_input_nodes}
        self.unneeded = [
            [name for name, final in last.items() if final == at and name not in wanted] for at in range(len(stages))
        ]

    def __call__(self, *args: Any) -> Any:
        known = dict(zip(self.inputs, args, strict=True))
        del args
        for at, (stage, unneeded) in enumerate(zip(self.stages, self.unneeded, strict=True)):
            known.update(zip(stage.results, self.run(at, [known[name] for name in stage.inputs]), strict=True))
            for name in unneeded:
                del known[name]
        return pytree.tree_map(lambda each: known[each.name], self.results, is_leaf=is_result)

    def run(self, at: int, given: list[Any]) -> Any:
        """Run one part, compiled first if it has not been."""
        fn, module = self.compiled[at], self.stages[at].module
        if fn is None:
            eager = any(map(self.as_it_is, module.graph.nodes))
            fn = self.compiled[at] = None if eager else self.backend(module, given)
            fn = self.compiled[at] = fn or module.forward
        return fn(*given)


def is_result(value: object) -> bool:
    return isinstance(value, Result)

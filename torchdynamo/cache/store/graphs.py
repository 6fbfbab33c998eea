"""Write captured graphs as text, and make them again when somebody asks: for eager, for errors, for reports."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType
from typing import Any
from weakref import ref

import torch
import torch.fx

from torchdynamo.backends.cache_key import OPERATORS, functions, is_keyed_by_names
from torchdynamo.backends.ensemble import operator_names
from torchdynamo.backends.ensemble.graph_data import graph_of, nodes_of
from torchdynamo.backends.ensemble.identity import HasNoName, name_of
from torchdynamo.cache.store.operators import is_custom
from torchdynamo.cache.store.sites import SiteWriter, read_sites
from torchdynamo.cache.store.values import NotStorable
from torchdynamo.codegen.checked_graph import CheckedPlan
from torchdynamo.core.call_sites import CallSite
from torchdynamo.errors import RecordError
from torchdynamo.graph.modules import graph_module
from torchdynamo.graph.mutation import Effects, effects_of, note_effects
from torchdynamo.graph.passes.stages import GraphStage
from torchdynamo.graph.tracebacks import Program


def dump_graph(gm: torch.fx.GraphModule, sites: Mapping[str, CallSite], known: Sequence[CodeType]) -> bytes:
    """Return a graph as JSON. Raises NotStorable for a node that cannot be written.

    sites: the program's calls at each node. known: code by whose number the calls are written.
    """
    try:
        nodes = nodes_of(gm.graph, name_in_graph)
    except RecordError as error:
        raise NotStorable(f"its graph cannot be written: {error}") from None
    writer = SiteWriter(known)
    at = [writer.row(sites.get(node.name)) for node in calls_of(gm.graph)]
    found = {"nodes": nodes, "effects": effects_as_data(gm), "sites": writer.rows, "at": at}
    return json.dumps(found).encode()


def calls_of(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Return the nodes that compute something, in order."""
    return [node for node in graph.nodes if node.op.startswith("call_")]


def targets_of(gms: Iterable[torch.fx.GraphModule]) -> dict[str, Any]:
    """Return the functions that graphs call, operators apart, by the names that they have there. Raises NotStorable.

    A name is none by which another process finds the function: the frame has facts for that.
    """
    found = {}
    for gm in gms:
        if not is_keyed_by_names(gm, but=is_custom):
            raise NotStorable("its graph calls code that is not torch's: nothing says whether that has changed")
        for function in functions(gm):
            if not isinstance(function, OPERATORS):
                try:
                    found[name_in_graph(function)] = function
                except RecordError as error:
                    raise NotStorable(f"its graph cannot be written: {error}") from None
    return found


def name_in_graph(function: Any) -> str:
    """Return the name of a function of torch or Python that a graph calls. Raises RecordError if it has none."""
    if isinstance(function, OPERATORS):
        return operator_names.name_of_function(function)
    try:
        return name_of(function)
    except HasNoName:
        raise RecordError(f"{function!r} has no name") from None


def effects_as_data(gm: torch.fx.GraphModule) -> list[Any]:
    """Return what a graph does besides computing: positions of inputs it writes to, and two answers."""
    effects = effects_of(gm)
    inputs = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    return [[at for at, name in enumerate(inputs) if name in effects.mutated], effects.random, effects.as_captured]


def plan_as_data(plan: CheckedPlan) -> dict[str, Any]:
    """Return how a graph is run that rests on assertions. Raises NotStorable for a node that cannot be written."""
    try:
        stages = [
            (json.dumps(nodes_of(each.module.graph, name_in_graph)), each.inputs, each.results) for each in plan.stages
        ]
    except RecordError as error:
        raise NotStorable(f"its graph cannot be written: {error}") from None
    return {**plan._asdict(), "stages": stages}


def plan_of(data: Mapping[str, Any], named: Callable[[str], Any]) -> CheckedPlan:
    """Return a plan from data. Raises RecordError for an operator that does not exist here.

    named: returns the function of a name, as `functions_by_name` does.
    """
    stages = [
        GraphStage(graph_module(torch.nn.Module(), graph_of(json.loads(nodes), named)), inputs, results)
        for nodes, inputs, results in data["stages"]
    ]
    return CheckedPlan(**{**data, "stages": stages})


def load_graph(data: bytes, named: Callable[[str], Any]) -> torch.fx.GraphModule:
    """Return the module of a graph. Raises RecordError for an operator that does not exist here."""
    found = json.loads(data)
    graph = graph_of(found["nodes"], named)
    gm = graph_module(torch.nn.Module(), graph)
    positions, random, as_captured = found["effects"]
    inputs = [node.name for node in graph.find_nodes(op="placeholder")]
    note_effects(gm, Effects(frozenset(inputs[at] for at in positions), random, as_captured))
    return gm


def functions_by_name(targets: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return what gives a function of a stored graph by its name: an operator, or one of these."""

    def named(name: str) -> Any:
        found = targets.get(name)
        return operator_names.function_named(name) if found is None else found

    return named


class StoredGraph:
    """A graph that is made when somebody looks at it."""

    def __init__(self, data: bytes, targets: Mapping[str, Any]) -> None:
        """Make the graph. targets: the functions that it calls, operators apart, as the frame has found them."""
        self._data = data
        self.named = functions_by_name(targets)

    @functools.cached_property
    def module(self) -> torch.fx.GraphModule:
        """The graph's module."""
        return load_graph(self._data, self.named)

    def program(self, known: Sequence[ref[CodeType]], start: CallSite) -> Program:
        """Return the program's calls at each node. known: the code that `dump_graph` was given."""
        data = json.loads(self._data)
        made = read_sites(data["sites"], known)
        places = zip(calls_of(self.module.graph), data["at"], strict=True)
        return Program(start, {node.name: made[at] for node, at in places if at >= 0})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

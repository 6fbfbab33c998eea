"""Tell which nodes of a graph run as they are, in Python, between pieces that a backend compiles.

They take or give a value of the host, which no compiler of torch's operators knows: an array or a generator of random
numbers. Or they take or give a number that comes of these, or of what a tensor holds. Or autograd asks them for a
backward that may run as the program wrote it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch.fx

from torchdynamo.graph.custom_backward import runs_as_written
from torchdynamo.graph.generators import is_generator
from torchdynamo.graph.numbers import SYMBOLIC
from torchdynamo.graph.numpy_nodes import is_array, np, of_numpy


def is_on_host(example: object) -> bool:
    """Return whether a value is an array, a generator or its seeds, or a list or tuple with some."""
    if isinstance(example, (list, tuple)):
        return any(map(is_on_host, example))
    if is_array(example) or is_generator(example):
        return True
    return np is not None and isinstance(example, np.random.SeedSequence)


def may_cross(example: object) -> bool:
    """Return whether a value that is no tensor may be handed from one piece to another."""
    return isinstance(example, SYMBOLIC) or is_on_host(example)


def example_of(node: torch.fx.Node) -> object:
    """Return the value that stands for what a node gives; None if nothing does."""
    return node.meta.get("example_value")


def takes_or_gives_host_value(node: torch.fx.Node) -> bool:
    """Return whether a node takes or gives what no compiler knows."""
    return node.target is of_numpy or any(map(is_on_host, map(example_of, (node, *node.all_input_nodes))))


def is_for_host(node: torch.fx.Node) -> bool:
    """Return whether no backend can be given a graph with this node.

    One that draws from a generator of torch's, which it is given, is left to the backend.
    """
    if node.op in ("placeholder", "output"):
        return False
    given = [example for example in map(example_of, node.all_input_nodes) if not isinstance(example, torch.Generator)]
    return node.target is of_numpy or any(map(is_on_host, (example_of(node), *given)))


def draws_from_numpy(node: torch.fx.Node) -> bool:
    """Return whether a node draws from a generator of NumPy's."""
    kinds = () if np is None else (np.random.RandomState, np.random.Generator)
    return any(isinstance(example, kinds) for example in map(example_of, node.all_input_nodes))


def as_they_are(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Return the nodes that run as they are: also those of numbers that are made in another piece.

    A number that comes of a tensor, and that is used between the same two of these nodes, is left to the compiler.
    """
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    numbers = [node for node in graph.nodes if isinstance(example_of(node), SYMBOLIC)]
    found = {node for node in nodes if runs_as_written(node) or takes_or_gives_host_value(node)}
    while True:
        pieces = pieces_between(nodes, found)
        crossing = [each for each in numbers if len({pieces.get(near) for near in (each, *each.users)}) > 1]
        outside = [each for each in numbers if each not in pieces]
        apart = {near for each in (*crossing, *outside) for near in (each, *each.users) if near in pieces}
        if not apart:
            return found
        found |= apart


def pieces_between(nodes: Sequence[torch.fx.Node], borders: Collection[torch.fx.Node]) -> dict[torch.fx.Node, int]:
    """Return for each node that is no border how many borders come before it."""
    found: dict[torch.fx.Node, int] = {}
    before = 0
    for node in nodes:
        if node in borders:
            before += 1
        else:
            found[node] = before
    return found


def has_host_nodes(gm: torch.fx.GraphModule) -> bool:
    """Return whether a graph or a body in it runs NumPy, or makes generators of random numbers."""
    return any(map(is_for_host, nodes_in(gm)))


def has_host_bodies(gm: torch.fx.GraphModule) -> bool:
    """Return whether the body of an operator that is compiled has nodes that run as they are: it cannot be cut."""
    held = (node for node in gm.graph.find_nodes(op="get_attr") if not runs_as_written(node))
    bodies = (getattr(gm, str(node.target)) for node in held)
    nodes = (node for body in bodies if isinstance(body, torch.fx.GraphModule) for node in nodes_in(body))
    return any(is_for_host(node) or runs_as_written(node) for node in nodes)


def nodes_in(gm: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    """Yield the nodes of a graph and of the bodies in it."""
    for each in gm.modules():
        if isinstance(each, torch.fx.GraphModule):
            yield from each.graph.nodes

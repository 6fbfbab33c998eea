"""Record how a graph came to be, step by step, so that a stretch of it can be added once more with other inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch.fx

from torchdynamo.core.source import Source
from torchdynamo.graph.fake_cache import Answer

if TYPE_CHECKING:
    from torchdynamo.graph.build import GraphBuilder

Node = torch.fx.Node

# How a node came to be, and with it its fake result.
INPUT: Final = "input"  # it is at a source when the graph begins
TRIED: Final = "tried"  # the operation was run on the fake tensors of its arguments
ITEM: Final = "item"  # it is an item of the result of its first argument
GIVEN: Final = "given"  # the caller knew the result
ERASED: Final = "erased"  # the node was taken back


class Step(NamedTuple):
    """Describe how a node was added to a graph, or taken back."""

    node: Node
    how: str
    op: str = ""
    target: Any = None
    args: tuple[Any, ...] = ()
    kwargs: Any = None
    answer: Answer | None = None  # by which its fake result is made, if that can be told
    source: Source | None = None


def replaced(value: Any, by: Callable[[Node], Node]) -> Any:
    """Return a nest of arguments with other nodes in the places of its nodes."""
    kind = type(value)
    if kind is Node:
        return by(value)
    if kind is tuple or kind is list:
        return kind([replaced(item, by) for item in value])
    if kind is dict:
        return {key: replaced(item, by) for key, item in value.items()}
    if kind is slice:
        return slice(replaced(value.start, by), replaced(value.stop, by), replaced(value.step, by))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*[replaced(item, by) for item in value])
    return value


def nodes_in(value: Any) -> list[Node]:
    """Return the nodes in a nest of arguments."""
    found: list[Node] = []

    def seen(node: Node) -> Node:
        found.append(node)
        return node

    replaced(value, seen)
    return found


def repeat(builder: GraphBuilder, step: Step, nodes: dict[Node, Node], constant: bool) -> Node:
    """Add the operation of a step once more, with other inputs of the same metadata: `nodes` maps those that are
    replaced.

    `constant`: the result holds no tensor, so that a later step erases the node; it is not computed again. Raises a
    GraphError if the operation cannot be tried.
    """

    fakes: list[Any] = []

    def now(node: Node) -> Node:
        found = nodes.get(node, node)
        fakes.append(found.meta["example_value"])
        return found

    args = tuple([now(arg) if type(arg) is Node else replaced(arg, now) for arg in step.args])
    kwargs = replaced(step.kwargs, now) if step.kwargs else step.kwargs
    answer = step.answer  # also what the new step is repeated by: recipes contain what recipes have added
    if constant:
        example = step.node.meta["example_value"]
    elif step.how is ITEM:
        example = fakes[0][args[1]]
    elif answer is not None:
        example = builder.fake_cache.again(answer, fakes)
    else:
        example = builder.example(step.op, step.target, args, kwargs)
        answer = builder.fake_cache.latest
    return builder.add(step.op, step.target, args, kwargs, example, step.node.meta["stack_trace"], step.how, answer)

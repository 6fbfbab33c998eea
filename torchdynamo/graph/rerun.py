"""Whether a frame can be run from its start after its graph has run: for checks that fail (capture/raising.py)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.fx

from torchdynamo.capture.catching import HARMLESS, name_of, takes_integers
from torchdynamo.capture.raising import Check
from torchdynamo.graph.build import GraphBuilder
from torchdynamo.graph.passes.dead_code import picks_a_result
from torchdynamo.graph.passes.stages import can_be_cut
from torchdynamo.graph.torch_compat import LEAF_MAKERS

Node = torch.fx.Node


def can_begin_again(builder: GraphBuilder, checks: Sequence[Check]) -> bool:
    """Whether a run of the graph leaves no trace: no input is written to, nothing unknown is called.

    Random numbers may be drawn: torch's own generators can be put back. Layers of torch.func would stay open where one
    raises.
    """
    nodes = list(builder.graph.nodes)
    if builder.mutated() or builder.record.unknown_effects or any(map(is_generator, nodes)):
        return False
    if any(node.target in LEAF_MAKERS or opens_layer(node) for node in nodes):
        return False
    cuts = stages(builder.graph, checks)
    if not cuts:
        return True
    return not builder.is_enclosing() and can_be_cut(builder.graph, cuts) and all(check.level for check in checks)


def is_generator(node: Node) -> bool:
    """Whether the graph is given a generator of random numbers."""
    return node.op == "placeholder" and isinstance(node.meta["example_value"], torch.Generator)


def opens_layer(node: Node) -> bool:
    """Whether a layer of torch.func begins here."""
    return str(getattr(node.target, "__name__", "")).endswith("_increment_nesting")


def stages(graph: torch.fx.Graph, checks: Sequence[Check]) -> list[Node]:
    """After which nodes the graph has to stop and look.

    Values that the program checks may be indices, and out of bounds these do worse than raise: compiled code may end
    the process, and a GPU is lost to it. So an operator that takes integers waits for the checks before it.
    """
    order = {node: at for at, node in enumerate(graph.nodes)}
    asked = sorted({check.value.node for check in checks}, key=order.__getitem__)
    risky = [at for node, at in order.items() if is_risky(node)]
    found = []
    for node, following in zip(asked, [*asked[1:], None]):
        end = len(order) if following is None else order[following]
        if any(order[node] < at <= end for at in risky):
            found.append(node)
    return found


def is_risky(node: Node) -> bool:
    """Whether what the operator does to the process may depend on values."""
    if not node.op.startswith("call_") or name_of(node.target) in HARMLESS or picks_a_result(node):
        return False
    examples = (each.meta["example_value"] for each in node.all_input_nodes)
    return takes_integers(node) or any(
        isinstance(each, torch.Tensor) and each.device.type != "cpu" for each in examples
    )

"""Whether a frame can be run from its start after its graph has run: for checks that fail (capture/raising.py)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.fx

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
    return not cuts or (can_be_cut(builder, nodes, cuts) and all(check.level for check in checks))


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
    for node, following in zip(asked, [*asked[1:], None], strict=True):
        end = len(order) if following is None else order[following]
        if any(order[node] < at <= end for at in risky):
            found.append(node)
    return found


def is_risky(node: Node) -> bool:
    """Whether what the operator does to the process may depend on values."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if not node.op.startswith("call_") or name in HARMLESS or picks_a_result(node):
        return False
    examples = [each.meta["example_value"] for each in node.all_input_nodes]
    tensors = [each for each in examples if isinstance(each, torch.Tensor)]
    return any(each.device.type != "cpu" or each.dtype in INTEGERS for each in tensors)


INTEGERS = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8})
# Operators and methods, by name, that take any values.
HARMLESS = frozenset(
    "add sub mul truediv neg abs lt le gt ge eq ne and_ or_ xor invert logical_and logical_or logical_not "
    "item tolist to type type_as float double half long int bool clone detach contiguous view reshape flatten "
    "unsqueeze squeeze expand expand_as transpose permute sum mean max min amax amin any all _is_all_true "
    "isnan isfinite isinf where masked_fill zeros_like ones_like full_like stack cat broadcast_tensors getattr".split()
)

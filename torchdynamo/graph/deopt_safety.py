"""Decide whether a frame can deoptimize: run from its start after its graph has run and an assertion has failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx

from torchdynamo.core.value import Symbol, TensorNode
from torchdynamo.graph.build import GraphBuilder
from torchdynamo.graph.passes.dead_code import picks_a_result
from torchdynamo.graph.passes.stages import can_be_cut
from torchdynamo.graph.raising_operators import HARMLESS, name_of, takes_integers
from torchdynamo.graph.torch_compat import LEAF_MAKERS, is_layered

Node = torch.fx.Node
# Limits, in bytes and tensors, of inputs that are copied before each run in order to be restored: enough for state and
# statistics, not for key-value caches.
MOST_COPIED, MOST_COPIES = 1 << 20, 64
# In-place operators that change more than contents.
RESHAPING = frozenset(
    "resize_ resize_as_ set_ t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ as_strided".split()
)


class Assertion(NamedTuple):
    """A condition that must hold for the capture to be valid; the graph checks it."""

    value: TensorNode | Symbol
    truth: bool
    level: bool  # grad mode, autocast and so on were as at entry


def can_run_again(
    builder: GraphBuilder, checks: Sequence[Assertion], inputs: Mapping[Node, Any] | None = None, whole: bool = False
) -> bool:
    """Return whether a run of the graph can be undone: it changes no input for good and calls nothing unknown.

    Random draws are allowed, because generators can be restored. So are writes to small `inputs`, which are
    copied beforehand, or to any inputs if there must be one `whole` graph. A torch.func transform is not: it would stay
    open.
    """
    nodes, written = list(builder.graph.nodes), builder.mutated()
    if written and not (
        inputs is not None and can_be_restored(builder, [(node, inputs[node]) for node in written], whole)
    ):
        return False
    if builder.record.unknown_effects:
        return False
    if any(node.target in LEAF_MAKERS or opens_layer(node) for node in nodes):
        return False
    cuts = stages(builder.graph, checks)
    if not cuts:
        return True
    return not builder.count_bodies() and can_be_cut(builder.graph, cuts) and all(check.level for check in checks)


def can_be_restored(builder: GraphBuilder, written: Sequence[tuple[Node, Any]], whole: bool) -> bool:
    """Return whether the graph changes only contents of these inputs, and few enough to copy."""
    if builder.record.everything_written or any(name_of(node.target) in RESHAPING for node in builder.graph.nodes):
        return False
    if not all(changes_contents_only(node.meta["example_value"], real) for node, real in written):
        return False
    copied = sum(real.numel() * real.element_size() for _, real in written)
    return whole or (len(written) <= MOST_COPIES and copied <= MOST_COPIED)


def changes_contents_only(example: Any, real: Any) -> bool:
    """Return whether a modified tensor has no autograd history, before or after, and is not expanded."""
    if type(real) not in (torch.Tensor, torch.nn.Parameter) or real.layout is not torch.strided or is_layered(real):
        return False
    alone = example.requires_grad == real.requires_grad and example.grad_fn is None and real.grad_fn is None
    return alone and torch._debug_has_internal_overlap(real) != 1


def opens_layer(node: Node) -> bool:
    """Return whether a node enters a torch.func transform."""
    return str(getattr(node.target, "__name__", "")).endswith("_increment_nesting")


def stages(graph: torch.fx.Graph, checks: Sequence[Assertion]) -> list[Node]:
    """Return the nodes after which the graph must stop and check assertions.

    Values that the program checks may be indices, and an index out of bounds does worse than raise: compiled code may
    end the process, and a GPU is lost to it. So an operator that takes integers must wait for the checks before it.
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
    """Return whether an operator may, depending on values, crash or raise outside of Python's control."""
    if not node.op.startswith("call_") or name_of(node.target) in HARMLESS or picks_a_result(node):
        return False
    examples = (each.meta["example_value"] for each in node.all_input_nodes)
    return takes_integers(node) or any(
        isinstance(each, torch.Tensor) and each.device.type != "cpu" for each in examples
    )

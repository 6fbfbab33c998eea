"""Tells whether a frame can be run from its start after its graph has run, where a check of the graph fails."""

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
# As much of what is written to is copied before each run, to be put back: state and statistics, not caches of keys.
MOST_COPIED, MOST_COPIES = 1 << 20, 64
# What would have to be put back besides contents.
RESHAPING = frozenset(
    "resize_ resize_as_ set_ t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ as_strided".split()
)


class Assertion(NamedTuple):
    """What has to be so for the capture to hold."""

    value: TensorNode | Symbol
    truth: bool
    level: bool  # whether the process's state was what it was at entry


def can_run_again(
    builder: GraphBuilder, checks: Sequence[Assertion], inputs: Mapping[Node, Any] | None = None, whole: bool = False
) -> bool:
    """Return whether a run of the graph leaves no trace: no input is written to, nothing unknown is called.

    Random numbers may be drawn: torch's own generators can be put back. So can contents of small `inputs`, or of any
    where it has to be one graph. Layers of torch.func would stay open where one raises.
    """
    nodes, written = list(builder.graph.nodes), builder.mutated()
    if written and not (
        inputs is not None and can_be_put_back(builder, [(node, inputs[node]) for node in written], whole)
    ):
        return False
    if builder.record.unknown_effects or any(map(is_generator, nodes)):
        return False
    if any(node.target in LEAF_MAKERS or opens_layer(node) for node in nodes):
        return False
    cuts = stages(builder.graph, checks)
    if not cuts:
        return True
    return not builder.is_enclosing() and can_be_cut(builder.graph, cuts) and all(check.level for check in checks)


def can_be_put_back(builder: GraphBuilder, written: Sequence[tuple[Node, Any]], whole: bool) -> bool:
    """Return whether contents are all that the graph changes of these inputs, and are copied in no time."""
    if builder.record.everything_written or any(name_of(node.target) in RESHAPING for node in builder.graph.nodes):
        return False
    if not all(is_only_contents(node.meta["example_value"], real) for node, real in written):
        return False
    copied = sum(real.numel() * real.element_size() for _, real in written)
    return whole or (len(written) <= MOST_COPIES and copied <= MOST_COPIED)


def is_only_contents(example: Any, real: Any) -> bool:
    """Return whether a tensor that was written to is no part of autograd's history, then or now, and not expanded."""
    if type(real) not in (torch.Tensor, torch.nn.Parameter) or real.layout is not torch.strided or is_layered(real):
        return False
    alone = example.requires_grad == real.requires_grad and example.grad_fn is None and real.grad_fn is None
    return alone and torch._debug_has_internal_overlap(real) != 1


def is_generator(node: Node) -> bool:
    """Return whether the graph is given a generator of random numbers."""
    return node.op == "placeholder" and isinstance(node.meta["example_value"], torch.Generator)


def opens_layer(node: Node) -> bool:
    """Return whether a layer of torch.func begins here."""
    return str(getattr(node.target, "__name__", "")).endswith("_increment_nesting")


def stages(graph: torch.fx.Graph, checks: Sequence[Assertion]) -> list[Node]:
    """Return the nodes after which the graph has to stop and check.

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
    """Return whether what the operator does to the process may depend on values."""
    if not node.op.startswith("call_") or name_of(node.target) in HARMLESS or picks_a_result(node):
        return False
    examples = (each.meta["example_value"] for each in node.all_input_nodes)
    return takes_integers(node) or any(
        isinstance(each, torch.Tensor) and each.device.type != "cpu" for each in examples
    )

"""What a graph does besides computing its outputs: which inputs it writes to, whether it draws random numbers.

Whoever calls a graph twice for one call of the user's, or with two names for the same memory, has to know.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import torch
import torch.fx
import torch.nn.functional as F
from torch.utils import _pytree as pytree

from torchdynamo.core.policy import FUSED_UPDATES
from torchdynamo.graph.torch_compat import LEAF_MAKERS, MODE_CHANGES, OPENERS, is_layered

_KEY = "torchdynamo_effects"


class Effects(NamedTuple):
    """Noted in the graph module's `meta` when the graph is finished."""

    mutated: frozenset[str]  # names of placeholders whose memory may change
    random: bool
    as_captured: bool = False  # there are operations that compilers know nothing of


def note_effects(gm: torch.fx.GraphModule, effects: Effects) -> None:
    """Keep what was seen while the graph was made."""
    gm.meta[_KEY] = effects


def effects_of(gm: torch.fx.GraphModule) -> Effects:
    """Return what the graph does; a graph nobody watched may do anything."""
    known = gm.meta.get(_KEY)
    if isinstance(known, Effects):
        return known
    return Effects(frozenset(node.name for node in gm.graph.find_nodes(op="placeholder")), random=True)


def mutated_inputs(gm: torch.fx.GraphModule) -> set[str]:
    """Return the names of the inputs that the graph may write to, directly or through a view of the same memory."""
    return set(effects_of(gm).mutated)


def changes_modes(gm: torch.fx.GraphModule) -> bool:
    """Return whether the graph switches grad mode, autocast or inference mode as it runs, or opens layers of
    torch.func.
    """
    return any(
        node.op == "call_function" and (node.target in MODE_CHANGES or node.target in OPENERS)
        for node in gm.graph.nodes
    )


def makes_leaves(gm: torch.fx.GraphModule) -> bool:
    """Return whether the graph makes leaves or asks for gradients itself, which a trace of operators does not say.

    A leaf is told by its example, whichever operator has made it. Inside a layer of torch.func there may be some: there
    the gradients are operators like any other.
    """
    inputs = {id(node.meta.get("example_value")) for node in gm.graph.find_nodes(op="placeholder")}
    return any(
        (node.target in LEAF_MAKERS or has_new_leaf(node, inputs))
        and not is_layered((node.meta.get("example_value"), node.args))
        for node in gm.graph.nodes
        if node.op.startswith("call_")
    )


def has_new_leaf(node: torch.fx.Node, inputs: Set[int]) -> bool:
    """Return whether a node gives a leaf that wants a gradient and is none of the inputs, by the ids of their examples.

    An operator may return an input itself.
    """
    return any(
        isinstance(each, torch.Tensor) and each.requires_grad and each.is_leaf and id(each) not in inputs
        for each in pytree.tree_leaves(node.meta.get("example_value"))
    )


def updates_in_one_kernel(gm: torch.fx.GraphModule) -> bool:
    """Return whether this is a fused update of an optimizer: it is compiled already, and not all have rules for
    tracing.
    """
    return any(node.target in FUSED_UPDATES for node in gm.graph.nodes)


def has_sparse_gradients(gm: torch.fx.GraphModule) -> bool:
    """Return whether a backward of this gives sparse tensors, which Inductor's kernels would take for dense ones."""
    places = {F.embedding: 6, F.embedding_bag: 7}  # of the argument `sparse`
    return any(
        node.kwargs.get("sparse") or True in node.args[places[node.target] :][:1]
        for node in gm.graph.nodes
        if node.target in places
    )


def reads_data(gm: torch.fx.GraphModule) -> bool:
    """Return whether the graph takes a tensor's `.data`, writes to which autograd does not notice."""
    return any(node.target is getattr and node.args[1] == "data" for node in gm.graph.nodes)

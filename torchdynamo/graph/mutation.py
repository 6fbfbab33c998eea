"""Tell what a graph does besides computing its outputs: which inputs it writes to, whether it draws random numbers.

Code that runs a graph twice for one call, or that gives two inputs one memory, must know.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import torch
import torch.fx
import torch.nn.functional as F
from torch.utils import _pytree as pytree

from torchdynamo.core.policy import FUSED_UPDATES
from torchdynamo.graph.recording import is_collective
from torchdynamo.graph.torch_compat import GRADIENTS, LEAF_MAKERS, MODE_CHANGES, OPENERS, is_layered

_KEY = "torchdynamo_effects"


class Effects(NamedTuple):
    """The side effects of a graph, kept in its module's `meta`."""

    mutated: frozenset[str]  # names of placeholders whose memory may change
    random: bool
    as_captured: bool = False  # it has operations that compilers do not know
    overwritten: frozenset[str] | None = None  # names of nodes in memory that is written to; None: not known
    communicates: bool = False  # with other ranks: it runs once for each call, and never but for one

    @property
    def repeatable(self) -> bool:
        """Return whether the graph can run twice in one call without an effect that the program could see."""
        return not (self.mutated or self.random or self.communicates)


def note_effects(gm: torch.fx.GraphModule, effects: Effects) -> None:
    """Store the side effects that were recorded while the graph was built."""
    gm.meta[_KEY] = effects


def effects_of(gm: torch.fx.GraphModule) -> Effects:
    """Return the side effects of a graph; for a graph from elsewhere, all that are possible."""
    known = gm.meta.get(_KEY)
    if isinstance(known, Effects):
        return known
    communicates = any(is_collective(node.target) for node in gm.graph.nodes)
    inputs = frozenset(node.name for node in gm.graph.find_nodes(op="placeholder"))
    return Effects(inputs, random=True, communicates=communicates)


def mutated_inputs(gm: torch.fx.GraphModule) -> set[str]:
    """Return the names of the inputs that the graph may write to, directly or through a view."""
    return set(effects_of(gm).mutated)


def changes_modes(gm: torch.fx.GraphModule) -> bool:
    """Return whether the graph changes grad mode, autocast or inference mode, or enters a torch.func transform."""
    return any(
        node.op == "call_function" and (node.target in MODE_CHANGES or node.target in OPENERS)
        for node in gm.graph.nodes
    )


ASKED = {"requires_grad_": 0, GRADIENTS: 1}  # which argument of an operation is what gradients are asked of


def makes_leaves(gm: torch.fx.GraphModule) -> bool:
    """Return whether the graph makes autograd leaves or computes gradients, which a trace does not record.

    A leaf is recognized by its example, whichever operator made it. Leaves inside of a torch.func transform do not
    count: gradients are ordinary operators there.
    """
    inputs = {id(node.meta.get("example_value")) for node in gm.graph.find_nodes(op="placeholder")}
    return any(
        (node.target in LEAF_MAKERS or has_new_leaf(node, inputs))
        and not is_layered((node.meta.get("example_value"), node.args))
        for node in gm.graph.nodes
        if node.op.startswith("call_")
    )


def keeps_leaves(gm: torch.fx.GraphModule) -> bool:
    """Return whether a graph asks for gradients only of what it has made itself, and returns no leaf."""
    for node in gm.graph.nodes:
        if node.target in LEAF_MAKERS:
            if node.target not in ASKED:
                return False
            asked = node.args[ASKED[node.target]]
            asked = asked if isinstance(asked, (list, tuple)) else [asked]
            if any(not isinstance(each, torch.fx.Node) or each.op == "placeholder" for each in asked):
                return False
    (output,) = gm.graph.find_nodes(op="output")
    results = [node.meta["example_value"] for node in output.all_input_nodes]
    return not any(each.requires_grad and each.is_leaf for each in results)


def has_new_leaf(node: torch.fx.Node, inputs: Set[int]) -> bool:
    """Return whether a node makes a leaf that requires a gradient. inputs: ids of the inputs' examples.

    An operator may return an input itself, which is no new leaf. Nor is a view of a parameter under `no_grad`, although
    autograd calls it one, unless the graph returns it.
    """
    is_returned = any(user.op == "output" for user in node.users)
    return any(
        isinstance(each, torch.Tensor)
        and each.requires_grad
        and each.is_leaf
        and id(each) not in inputs
        and (is_returned or not each._is_view())
        for each in pytree.tree_leaves(node.meta.get("example_value"))
    )


def updates_in_one_kernel(gm: torch.fx.GraphModule) -> bool:
    """Return whether the graph is an optimizer's fused update, compiled already and hard to trace."""
    return any(node.target in FUSED_UPDATES for node in gm.graph.nodes)


def has_sparse_gradients(gm: torch.fx.GraphModule) -> bool:
    """Return whether the backward gives sparse gradients, which Inductor would take for dense ones."""
    places = {F.embedding: 6, F.embedding_bag: 7}  # of the argument `sparse`
    return any(
        node.kwargs.get("sparse") or True in node.args[places[node.target] :][:1]
        for node in gm.graph.nodes
        if node.target in places
    )


def reads_data(gm: torch.fx.GraphModule) -> bool:
    """Return whether the graph reads a tensor's `.data`; autograd does not notice writes through it."""
    return any(node.target is getattr and node.args[1] == "data" for node in gm.graph.nodes)

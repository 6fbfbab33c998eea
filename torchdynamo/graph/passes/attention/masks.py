"""Prove what masks are: by computing those that are made of constants, or of buffers whose contents are checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import torch
import torch.fx

from torchdynamo.graph.constants import Deterministic, is_operation, run
from torchdynamo.graph.passes.attention.calls import example

Node = torch.fx.Node
MOST_ELEMENTS = 2**25
LEAST_FILL = -1e4
"""A mask fills in this or less, so that softmax gives the position no weight."""


class Unknown(Exception):
    """Raised for a tensor that depends on more than constants and buffers."""


class Proof(NamedTuple):
    """Properties proved of a mask: it keeps at least one key for each query; it is causal; it keeps everything.

    inputs: the placeholders whose contents prove it.
    """

    keeps_some: bool = False
    causal: bool = False
    keeps_all: bool = False
    inputs: frozenset[Node] = frozenset()


class Evaluator:
    """Computes tensors that are equal in every run.

    buffers: inputs and attributes of the module whose contents may be taken for granted. overwritten: names of nodes in
    memory that is written to.
    """

    def __init__(self, buffers: Mapping[Node, torch.Tensor], overwritten: Collection[str]) -> None:
        self.buffers = buffers
        self.overwritten = overwritten
        self.known: dict[Node, tuple[Any, frozenset[Node]] | None] = {}

    def constant(self, node: Node) -> torch.Tensor | None:
        """Return the tensor of a node that is computed from constants alone; None for any other."""
        value, inputs = self.value(node) or (None, frozenset())
        return value if isinstance(value, torch.Tensor) and not inputs else None

    def value(self, node: Node) -> tuple[Any, frozenset[Node]] | None:
        """Return what a node computes, and the buffers that it is computed from; None if that is not known."""
        if node not in self.known:
            self.known[node] = None
            try:
                with torch.no_grad(), Deterministic():
                    self.known[node] = self.computed(node)
            except Exception:  # whatever an operator raises for these arguments, it raises when the graph runs
                return None
        return self.known[node]

    def computed(self, node: Node) -> tuple[Any, frozenset[Node]]:
        """Compute a node. Raises Unknown."""
        fake = example(node)
        if node.name in self.overwritten or not isinstance(fake, torch.Tensor):
            raise Unknown
        if node in self.buffers:
            return self.buffers[node], frozenset({node} if node.op == "placeholder" else ())
        if not is_operation(node) or not all(type(each) is int for each in fake.shape) or fake.numel() > MOST_ELEMENTS:
            raise Unknown
        before = {each: self.value(each) for each in node.all_input_nodes}
        if any(each is None for each in before.values()):
            raise Unknown
        found = {each: pair for each, pair in before.items() if pair is not None}
        inputs = frozenset[Node]().union(*(pair[1] for pair in found.values()))
        return run(node, {each: pair[0] for each, pair in found.items()}), inputs

    def proof(self, mask: Node, keep: Callable[[torch.Tensor], torch.Tensor | None], queries: Any, keys: Any) -> Proof:
        """Return what is known of a mask over these numbers of queries and keys.

        keep: tells from the mask's contents which keys are kept; None if it cannot tell.
        """
        value, inputs = self.value(mask) or (None, frozenset())
        if not isinstance(value, torch.Tensor) or type(queries) is not int or type(keys) is not int:
            return Proof()
        kept = keep(value)
        if kept is None or kept.dim() == 0:
            return Proof()
        keeps_all, some = bool(kept.all()), bool(kept.any(-1).all())
        causal = False
        if kept.dim() >= 2 and tuple(kept.shape[-2:]) == (queries, keys):
            lower = torch.ones(queries, keys, dtype=torch.bool, device=kept.device).tril()
            causal = bool((kept == lower).all())
        if inputs and not (causal or keeps_all):
            return Proof()  # not worth a check in each call
        return Proof(some, causal, keeps_all, inputs)


def keeps_where_true(value: torch.Tensor) -> torch.Tensor | None:
    """Tell which keys a boolean mask keeps that says True for them."""
    return value if value.dtype == torch.bool else None


def keeps_where_false(value: torch.Tensor) -> torch.Tensor | None:
    """Tell which keys a boolean mask keeps that says False for them."""
    return ~value if value.dtype == torch.bool else None


def keeps_zeros(value: torch.Tensor) -> torch.Tensor | None:
    """Tell which keys an added mask keeps; None for one that has more than two values."""
    kept = value == 0
    return kept if bool((kept | (value <= LEAST_FILL)).all()) else None

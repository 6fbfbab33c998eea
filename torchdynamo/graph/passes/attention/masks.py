"""Prove what masks are: by computing those that are made of constants, or of buffers whose contents are checked.

Also bound values by how they are computed, to prove that a bias is finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import torch
import torch.fx

from torchdynamo.graph.constants import Deterministic, is_operation, run
from torchdynamo.graph.passes.attention.calls import NamedCall, example, read

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

    buffers: inputs whose contents may be taken for granted. overwritten: names of nodes in memory that is written to.
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
        if node.op == "placeholder":
            if node not in self.buffers:
                raise Unknown
            return self.buffers[node], frozenset({node})
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


# ---- bounds: how large a value can be, by how it is computed --------------------------------------------------------


def bound(node: Any, depth: int = 0) -> float:
    """Return a number that no element exceeds in size; infinity if none is known."""
    if type(node) in (bool, int, float):
        return math.inf if math.isnan(node) else abs(float(node))
    fake = example(node)
    if not isinstance(node, Node) or not isinstance(fake, torch.Tensor) or depth > 40:
        return math.inf
    if fake.dtype == torch.bool:
        return 1.0
    made = MADE.get(node.target)
    if made is not None:
        return bound(made(node), depth + 1)
    call = read(node)
    rule = BOUNDS.get(call.name) if call is not None else None
    if call is None or rule is None:
        return math.inf
    found = rule(call, depth + 1)
    return found if found <= largest(fake.dtype) else math.inf


def largest(dtype: torch.dtype) -> float:
    """Return the largest finite number of a dtype."""
    return torch.finfo(dtype).max if dtype.is_floating_point else float(torch.iinfo(dtype).max)


def of_input(call: NamedCall, depth: int) -> float:
    return bound(call["input"], depth)


def of_sum(call: NamedCall, depth: int) -> float:
    alpha = call["alpha"]
    return bound(call["input"], depth) + bound(call["other"], depth) * (1.0 if alpha is None else bound(alpha))


def of_product(call: NamedCall, depth: int) -> float:
    one, two = bound(call["input"], depth), bound(call["other"], depth)
    return 0.0 if 0.0 in (one, two) and math.inf not in (one, two) else one * two


def of_fill(call: NamedCall, depth: int) -> float:
    return max(bound(call["input"], depth), bound(call["value"], depth))


def of_choice(call: NamedCall, depth: int) -> float:
    return max(bound(call["input"], depth), bound(call["other"], depth))


def of_one_less(call: NamedCall, depth: int) -> float:
    """Bound a difference; that of 1 and truth values is no larger than 1."""
    one, two = call["input"], call["other"]
    if one == 1 and is_truth(two):
        return 1.0
    return of_sum(call, depth)


def is_truth(node: Any) -> bool:
    """Return whether all elements are 0 or 1, as those of a boolean tensor in another dtype are."""
    call = read(node)
    while call is not None and call.name in ("cast", "same", "reshape", "getitem", "expand", "transpose"):
        node = call["input"]
        call = read(node)
    fake = example(node)
    return isinstance(fake, torch.Tensor) and fake.dtype == torch.bool


BOUNDS: dict[str, Callable[[NamedCall, int], float]] = {
    **dict.fromkeys(
        ("cast", "same", "reshape", "getitem", "expand", "transpose", "permute", "detach", "neg"), of_input
    ),
    "add": of_sum,
    "sub": of_one_less,
    "mul": of_product,
    "masked_fill": of_fill,
    "where": of_choice,
}
MADE: dict[Any, Callable[[Node], Any]] = {  # what makes a tensor -> its value
    torch.zeros: lambda node: 0,
    torch.zeros_like: lambda node: 0,
    torch.ones: lambda node: 1,
    torch.ones_like: lambda node: 1,
    torch.full: lambda node: node.args[1] if len(node.args) > 1 else node.kwargs.get("fill_value"),
    torch.tensor: lambda node: node.args[0],
    torch.triu: lambda node: node.args[0],
    torch.tril: lambda node: node.args[0],
}

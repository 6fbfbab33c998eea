"""The normal form of attention: two products, and the steps that lead from the scores to their weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch.fx

Node = torch.fx.Node


class Miss(Exception):
    """Raised where something stays as it is written, with the reason and the node that is the reason."""

    def __init__(self, reason: str, node: Node | None = None, depth: int = 0) -> None:
        super().__init__(reason)
        self.node = node
        self.depth = depth  # steps from the softmax, to tell which of several readings went furthest


@dataclass(frozen=True)
class ScoreStep:
    """Something that is done to scores. lead: their leading sizes at that point, before queries and keys."""

    lead: tuple[Any, ...]


@dataclass(frozen=True)
class Scale(ScoreStep):
    """A multiplication by a number, or by a tensor that is the same for all queries and keys of a head."""

    by: Any
    divides: bool = False


@dataclass(frozen=True)
class Bias(ScoreStep):
    """An addition of `factor` times a tensor."""

    tensor: Node
    factor: float


@dataclass(frozen=True)
class Fill(ScoreStep):
    """A value in the place of scores: where the mask says False if `keeps`, else where it says True."""

    mask: Node
    value: float
    keeps: bool


@dataclass(frozen=True)
class Cap(ScoreStep):
    """A hyperbolic tangent."""


class Operand(NamedTuple):
    """A tensor of a product. dims: its dimensions in the order that is wanted, None for a new one; None: as it is."""

    node: Node
    dims: tuple[int | None, ...] | None = None


class Product(NamedTuple):
    """A product of [..., rows, inner] and [..., columns, inner], or of [..., inner, columns] for the second product.

    out: how the dimensions [..., rows, columns] are permuted in the result; None: not at all.
    """

    left: Operand
    right: Operand
    out: tuple[int, ...] | None = None


class Attention(NamedTuple):
    """Attention as it was found in a graph: query @ keys, the steps, a softmax, a dropout, weights @ value."""

    first: Product
    steps: list[ScoreStep]  # in the order of execution
    second: Product
    scores: Node  # the product of queries and keys
    softmax: Node  # the result of the softmax
    weights: Node  # the first factor of the second product
    result: Node
    dropout: float
    emptied: str  # what makes the weights of rows without keys zero after the softmax: see `empties`
    inner: tuple[Node, ...]  # all nodes that the operator replaces

    @property
    def lead(self) -> tuple[Any, ...]:
        """Return the leading sizes of the scores at the softmax."""
        return tuple(self.softmax.meta["example_value"].shape[:-2])

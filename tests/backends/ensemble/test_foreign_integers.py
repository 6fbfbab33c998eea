"""Bounds of integers that a graph computes: what is proven of an index, and what is left to test at each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from foreign import subgraph_of

from torchdynamo.backends.ensemble.exported import exported
from torchdynamo.backends.ensemble.integer_values import Check, Integers, Values, index_checks, merged
from torchdynamo.backends.ensemble.member import Declined

I = torch.tensor([[3, 1, 2], [0, 2, 4]])  # noqa: E741
X = torch.randn(2, 5)
T = torch.randn(9, 2)
READ = Values(2**63, -(2**63), frozenset({0}))

BOUNDS: dict[str, tuple[Callable[..., torch.Tensor], torch.Tensor, Values | None]] = {
    "an input": (lambda i: i.t().unsqueeze(0).expand(2, 3, 2).clone(), I, READ),
    "part of an input": (lambda i: torch.stack(i.unbind(0)[:1]), I, READ),
    "an input and numbers": (lambda i: i.masked_fill(i > 2, 7), I, Values(7, 7, frozenset({0}))),
    "shifted in place": (
        lambda i: torch.zeros(2, 3, dtype=torch.long).slice_scatter(i[:, 1:], 1, 1),
        I,
        Values(0, 0, frozenset({0})),
    ),
    "a constant": (lambda i: torch.arange(3, 8) * 2 + torch.zeros_like(i[:, :1]), I, Values(6, 14)),
    "filled": (lambda i: torch.full_like(i, 3) - torch.ones_like(i), I, Values(2, 2)),
    "a bool": (lambda i: (i > 2).long(), I, Values(0, 1)),
    "a sum of bools": (lambda i: (i > 2).long().cumsum(1) + 1, I, Values(1, 7)),
    "clamped": (lambda i: i.clamp(0, 4), I, Values(0, 4)),
    "product": (lambda i: i.clamp(-2, 4) * 3 - 1, I, Values(-7, 11)),
    "wider": (lambda i: i.int().long(), I.int(), READ),
    "narrower": (lambda i: i.int(), I, None),
    "computed": (lambda i: i + 1, I, None),
    "places": (lambda x: x.argmax(1), X, Values(0, 4)),
    "places of all": (lambda x: x.argmax(), X, Values(0, 9)),
    "sorted places": (lambda x: x.sort(0)[1], X, Values(0, 1)),
    "places of the largest": (lambda x: x.topk(2)[1], X, Values(0, 4)),
    "of two": (lambda i: torch.where(i > 2, i.clamp(0, 2), 9), I, Values(0, 9)),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds(name: str) -> None:
    fn, given, wanted = BOUNDS[name]
    program = exported(subgraph_of(fn, given)).program
    integers = Integers(program)
    (result,) = program.graph.output_node().args[0]
    assert integers.of(result) == wanted


CHECKS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], list[Check]]] = {
    "embedding": (lambda i, t: F.embedding(i, t), (I, T), [Check(0, 0, 8)]),
    "subscript": (lambda i, t: t[i], (I, T), [Check(0, -9, 8)]),
    "twice": (lambda i, t: F.embedding(i, t) + t[:7][i], (I, T), [Check(0, 0, 6)]),
    "gather": (lambda x, i: x.gather(-1, i), (X, I), [Check(1, 0, 4)]),
    "places": (lambda t: F.embedding(torch.arange(4), t), (T,), []),
    "a mask": (lambda x: torch.zeros(2, 5).index_put((x > 0,), torch.tensor(1.0)), (X,), []),
}


@pytest.mark.parametrize("name", CHECKS)
def test_checks(name: str) -> None:
    fn, given, wanted = CHECKS[name]
    program = exported(subgraph_of(fn, *given)).program
    assert merged(index_checks(program, Integers(program))) == wanted


def test_constants_are_read_where_they_are_frozen() -> None:
    class Lookup(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("places", torch.arange(12).view(1, 12))

        def forward(self, table: torch.Tensor) -> torch.Tensor:
            return F.embedding(self.places[:, :9], table)

    program = exported(subgraph_of(Lookup(), T)).program
    assert [check[1:] for check in index_checks(program, Integers(program))] == [(0, 8)]
    program = exported(subgraph_of(Lookup(), T, constants=True)).program
    assert index_checks(program, Integers(program)) == []


def test_an_index_from_the_end() -> None:
    program = exported(subgraph_of(lambda t: t[torch.tensor([-1, 0])] * 2, T)).program
    assert index_checks(program, Integers(program)) == []
    with pytest.raises(Declined, match="an index of index may be out of range: it is from -1 to 0, not 0 to 8"):
        index_checks(program, Integers(program), from_the_end=False)

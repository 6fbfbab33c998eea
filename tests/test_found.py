"""Programs that random writing has found, in their smallest form: each was once captured wrongly, or not at all."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
import worlds

import torchdynamo

CASES: list[Any] = []
Call = Callable[[], list[Any]]


def case(name: str, source: str, *calls: Call, whole: bool = True) -> None:
    """A program, the arguments of its calls, and whether it is one graph."""
    CASES.append(pytest.param(textwrap.dedent(source), calls, whole, id=name))


def tensor() -> torch.Tensor:
    return torch.tensor([1.0, -2.0, 3.0])


def computed() -> torch.Tensor:
    return torch.ones(3, requires_grad=True) * 2


# -- numbers that vary ------------------------------------------------------------------------------------------------
NUMBERS = [(lambda i=i: [tensor(), i]) for i in (1, 2, 3, 3)]

case("missing_key_that_varies", "def f(x, i):\n    return x + {'a': 1}.get(i, 0)", *NUMBERS)
case(
    "given_dict_asked_for_a_number_that_varies",
    """
    def f(x, d, i):
        d.setdefault(i, 3)
        return x + d.get(i + 1, 0) + (i in d)
    """,
    *[(lambda i=i: [tensor(), {"a": i}, i]) for i in (1, 2, 3)],
)
case(
    "order_of_a_set_of_numbers_that_vary",
    """
    def f(x, ns, i):
        st = set(ns)
        st |= {i, 9}
        return x + sum(st) + min(st), list(st)
    """,
    *[(lambda i=i: [tensor(), [i, 7], i * 2]) for i in (1, 2, 3)],
)
case(
    "deep_copy_of_numbers_that_vary",
    """
    import copy
    def f(x, ns):
        return x + len(copy.deepcopy(ns)), copy.deepcopy(ns)
    """,
    *[(lambda i=i: [tensor(), [i, i]]) for i in (1, 2, 3)],
)
case(
    "number_that_a_fact_ties_to_another",
    """
    def f(x, i, ns):
        ns[0] += i
        return x * ns.count(1) + i
    """,
    *[(lambda i=i, n=n: [tensor(), i, [n, 1]]) for i, n in ((1, 3), (2, 3), (3, 3), (1, 1), (0, 1), (2, -1))],
)

# -- views ------------------------------------------------------------------------------------------------------------
case(
    "view_made_and_written_without_gradients",
    """
    def f(x):
        with torch.no_grad():
            v = x.view(-1)
            v.add_(1)
        return x * 2
    """,
    lambda: [computed()],
    lambda: [tensor()],
)


@pytest.mark.parametrize(("source", "calls", "whole"), CASES)
def test_agrees(source: str, calls: tuple[Call, ...], whole: bool) -> None:
    torchdynamo.reset()
    arguments = [lambda space, call=call: (call(), {}) for call in calls]
    assert worlds.compare(source, arguments).whole == whole

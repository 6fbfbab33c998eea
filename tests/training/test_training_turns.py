"""Several ways back in one function, in any order, with results that lead to several: as a GAN's step has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from training import BACKENDS, assert_feature, loop, state

from torchdynamo.graph.history import ways_of

F = torch.nn.functional


def both_then_the_sum(a: Any, b: Any, step: Any) -> Any:
    a.backward()
    b.backward()
    step()
    return a + b


def the_sum_first(a: Any, b: Any, step: Any) -> Any:
    total = a + b
    b.backward()
    a.backward()
    step()
    return total


def a_step_between(a: Any, b: Any, step: Any) -> Any:
    a.backward()
    total = a + 1
    step()
    b.backward()
    return total


def sums_of_sums(a: Any, b: Any, step: Any) -> Any:
    total = a + b
    half, more = total / 2, total * 2
    a.backward()
    step()
    b.backward()
    return half, more


def the_sum_alone(a: Any, b: Any, step: Any) -> Any:
    total = a * 2 + b
    total.backward()
    step()
    return a, b


def kept(a: Any, b: Any, step: Any) -> Any:
    total = a + b
    a.backward(retain_graph=True)
    total.backward()
    step()
    return total


def one_is_dropped(a: Any, b: Any, step: Any) -> Any:
    total = a + b
    b.backward()
    step()
    return total.detach(), a


STEP_AT_THE_END: list[Callable[..., Any]] = [both_then_the_sum, the_sum_first, the_sum_alone, kept, one_is_dropped]
STEP_BETWEEN: list[Callable[..., Any]] = [a_step_between, sums_of_sums]
CASES = [(order, False) for order in STEP_AT_THE_END + STEP_BETWEEN] + [(order, True) for order in STEP_AT_THE_END]


def gan(order: Callable[..., Any], shared: bool) -> Callable[[Any], Any]:
    """Make a program of two players who take turns. `shared`: the first is in both losses."""

    def program(compile: Any) -> Any:
        judge = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        maker = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
        judges = torch.optim.SGD(judge.parameters(), lr=0.05)

        def train_step(x: torch.Tensor) -> Any:
            made = maker(x)
            real = F.softplus(-judge(x)).mean()
            fake = F.softplus(judge(made)).mean() if shared else made.square().mean()
            results = order(real, fake, judges.step)
            return results.detach() if isinstance(results, torch.Tensor) else [each.detach() for each in results]

        return loop(compile(train_step), maker), state(judge, judges)

    return program


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("order", "shared"), CASES)
def test_players_take_turns(order: Any, shared: bool, backend: str) -> None:
    assert_feature(gan(order, shared), backend)


@pytest.mark.parametrize(
    ("groups", "ways"),
    [
        ({0b01, 0b10}, {0b01: 0, 0b10: 1}),
        ({0b11, 0b01}, {0b11: 0, 0b01: 0}),  # a loss, and what it is computed from
        ({0b101, 0b110, 0b100}, {0b101: 0, 0b110: 1, 0b100: 2}),  # the sum of two losses
        ({0b1101, 0b1110, 0b1100, 0b1000}, {0b1101: 0, 0b1110: 1, 0b1100: 2, 0b1000: 2}),  # and twice that sum
        ({0b0011, 0b0110, 0b1100, 0b1001}, dict.fromkeys((0b0011, 0b0110, 0b1100, 0b1001), 0)),  # a ring
    ],
)
def test_ways_of_results(groups: set[int], ways: dict[int, int]) -> None:
    assert ways_of(groups) == ways

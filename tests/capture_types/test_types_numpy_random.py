"""NumPy's generators that the frame seeds or makes: what is drawn, and the state that they are left in."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import torchdynamo

STATE, GENERATOR, PYTHON = np.random.RandomState(5), np.random.default_rng(5), random.Random(5)


def seeded_globally(x: Tensor) -> Any:
    np.random.seed(3)
    drawn = np.random.rand(), np.random.uniform(1, 2), np.random.randint(4), np.random.normal(size=2).tolist()
    return x * drawn[0] + drawn[1], drawn


def seeded_there(x: Tensor) -> Any:
    STATE.seed(4)
    return x * STATE.uniform(0, 1) + STATE.randn(), STATE.permutation(4).tolist(), STATE.choice([1, 2, 3])


def made_here(x: Tensor) -> Any:
    state, generator = np.random.RandomState(7), np.random.default_rng(8)
    drawn = state.rand(2).tolist(), generator.integers(9), generator.standard_normal()
    return x * drawn[2], drawn, state.rand()


def arrays(x: Tensor) -> Any:
    return x + torch.from_numpy(np.random.RandomState(7).rand(3)).float()


def bits(x: Tensor) -> Any:
    random.seed(3)
    return x * random.getrandbits(4) + random.uniform(1, 2), random.randint(1, 9), random.sample(range(9), 3)


def in_turn(x: Tensor) -> Any:
    """Two kinds of generators, one of them seeded again."""
    np.random.seed(1)
    random.seed(2)
    first = np.random.rand(), random.random(), np.random.rand()
    np.random.seed(1)
    return x + first[0], first, np.random.rand(), random.random()


WHOLE = [seeded_globally, seeded_there, made_here, arrays, bits, in_turn]


def drawn_unseeded(x: Tensor) -> Any:
    y = x * random.random() + np.random.rand()
    return y * STATE.uniform(1, 2) + GENERATOR.random(), random.getrandbits(9), PYTHON.random()


def around_a_break(x: Tensor) -> Any:
    np.random.seed(3)
    y = x * np.random.rand()
    torchdynamo.graph_break()
    return y + np.random.rand(), np.random.randint(9)


def some_times(x: Tensor) -> Any:
    if np.random.rand() < 0.5:
        return x + random.random()
    return x - STATE.randn()


def states() -> Any:
    """Return where each generator's next number comes from."""
    plain = [each.get_state(legacy=False) for each in (np.random, STATE)]
    return str([*plain, GENERATOR.bit_generator.state, hash(random.getstate()), hash(PYTHON.getstate())])


def runs(run: Any) -> Any:
    np.random.seed(0)
    random.seed(0)
    STATE.seed(5)
    PYTHON.seed(5)
    GENERATOR.bit_generator.state = np.random.default_rng(5).bit_generator.state
    return [(repr(run(torch.ones(3))), states()) for _ in range(4)]


@pytest.mark.parametrize("program", WHOLE, ids=lambda program: program.__name__)
def test_captured_whole(program: Any) -> None:
    assert runs(torchdynamo.compile(program, backend="eager", fullgraph=True)) == runs(program)


@pytest.mark.parametrize("program", [drawn_unseeded, around_a_break, some_times], ids=lambda program: program.__name__)
def test_as_eager(program: Any) -> None:
    assert runs(torchdynamo.compile(program, backend="eager")) == runs(program)


def test_generators_that_leave_go_on_as_eagers() -> None:
    def program(x: Tensor) -> Any:
        state, generator = np.random.RandomState(7), np.random.default_rng(8)
        return x + state.rand() + generator.random(), state, generator

    _, *wanted = program(torch.ones(2))
    for _ in range(2):
        _, *got = torchdynamo.compile(program, backend="eager", fullgraph=True)(torch.ones(2))
        assert [type(each) for each in got] == [type(each) for each in wanted]
        again = program(torch.ones(2))[1:]
        assert [each.random(2).tolist() for each in got] == [each.random(2).tolist() for each in again]

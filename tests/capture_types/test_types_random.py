"""random: what is drawn after the frame has seeded is known; what is not, is drawn anew by every call."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from following import check

import torchdynamo

X = torch.arange(4.0)


def seeded(x: Any) -> Any:
    random.seed(0)
    items = [1, 2, 3]
    random.shuffle(items)
    drawn = random.random(), random.randint(0, 10), random.choice([1, 2, 3]), random.uniform(0, 1), random.gauss(0, 1)
    return x * drawn[0], drawn, items, random.sample(range(10), 3), random.getrandbits(70), random.randbytes(3)


def own(x: Any) -> Any:
    rng = random.Random(5)
    return x * rng.random(), rng.gauss(0, 1)


class Mine(random.Random):
    pass


def kept(x: Any) -> Any:
    rng = Mine(7)
    rng.gauss(0, 1)
    return x + 1, rng


def drawn(x: Any) -> Any:
    return x * random.random(), random.getrandbits(8)


@pytest.mark.parametrize("fn", [seeded, own])
def test_random(fn: Any) -> None:
    check(fn, (X,))


def test_the_state_that_is_left() -> None:
    seeded(X)
    wanted = random.getstate()
    random.seed(1)
    torchdynamo.compile(seeded, backend="eager", fullgraph=True)(X)
    assert random.getstate() == wanted


def test_a_generator_that_is_kept() -> None:
    compiled = torchdynamo.compile(kept, backend="eager", fullgraph=True)
    for _ in range(2):
        rng = compiled(X)[1]
        wanted = kept(X)[1]
        assert type(rng) is Mine and (rng.gauss(0, 1), rng.random()) == (wanted.gauss(0, 1), wanted.random())


def test_each_call_draws() -> None:
    compiled = torchdynamo.compile(drawn, backend="eager")
    random.seed(3)
    wanted = [drawn(X) for _ in range(3)]
    random.seed(3)
    for want in wanted:
        got = compiled(X)
        assert torch.equal(got[0], want[0]) and got[1] == want[1]


def only_drawn(x: Any) -> Any:
    random.getrandbits(32)
    return x + 1


def drawn_and_kept(x: Any) -> Any:
    first, second = random.getrandbits(32), random.getrandbits(8)
    return x + 1, [second], first


def drawn_and_used(x: Any) -> Any:
    bits = random.getrandbits(32)
    y = x + 1
    return y * (bits % 3), bits


def seeded_after(x: Any) -> Any:
    bits = random.getrandbits(4)
    random.seed(3)
    return x + random.getrandbits(4), bits


def compared(x: Any) -> Any:
    return x + 1, random.getrandbits(1) is random.getrandbits(1), random.getrandbits(1) is len("a")


@pytest.mark.parametrize(
    ("fn", "whole"),
    [
        (only_drawn, True),
        (drawn_and_kept, True),
        (drawn_and_used, False),
        (seeded_after, False),
        (compared, False),
    ],
)
def test_bits_that_are_drawn_after_the_graph(fn: Any, whole: bool) -> None:
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=whole)
    for seed in range(3):
        random.seed(seed)
        wanted, next_wanted = fn(X), random.random()
        random.seed(seed)
        got, next_got = compiled(X), random.random()
        assert str(got) == str(wanted) and next_got == next_wanted
    if not whole:
        with pytest.raises(torchdynamo.exc.Unsupported):
            torchdynamo.compile(fn, backend="eager", fullgraph=True)(X)


@pytest.mark.parametrize("bits", [-1, 2**65])
def test_a_draw_that_raises_is_caught(bits: int) -> None:
    def caught(x: Any) -> Any:
        try:
            random.getrandbits(bits)
        except (ValueError, OverflowError) as error:
            return x + 1, type(error), str(error)
        return x

    assert str(torchdynamo.compile(caught, backend="eager")(X)) == str(caught(X))

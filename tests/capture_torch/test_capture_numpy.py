"""Arrays that leave a frame, and what a capture rests on of those that were there."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

import torchdynamo

X = torch.randn(3)


def made(x):
    a = np.arange(4) * 2
    return x + 1, a, a.reshape(2, 2).copy(), [np.float32(1.5)]


def test_arrays_come_out() -> None:
    compiled = torchdynamo.compile(made, backend="eager", fullgraph=True)
    first = compiled(X)[1]
    first[0] = 99  # each call's array is its own
    for _ in range(2):
        (_, a, b, (c,)), (_, d, e, (f,)) = compiled(X), made(X)
        assert np.array_equal(a, d) and a.dtype == d.dtype and np.array_equal(b, e) and type(c) is type(f) and c == f


def scaled(x, a, n):
    return x * a[0] + n


@pytest.mark.parametrize(
    "change",
    [
        lambda a, n: (a + 1, n),
        lambda a, n: (a.astype(np.float32), n),
        lambda a, n: (a[None], n),
        lambda a, n: (a, n + 1),
        lambda a, n: (a, np.float32(n)),
        lambda a, n: (a.__setitem__(0, 7) or a, n),
    ],
)
def test_what_is_guarded(change) -> None:
    compiled = torchdynamo.compile(scaled, backend="eager", fullgraph=True)
    a, n = np.array([2.0, 3.0, 4.0]), np.int64(5)
    for _ in range(2):
        assert torch.equal(compiled(X, a, n), scaled(X, a, n))
        a, n = change(a, n)
        a = a if a.ndim == 1 else a[:, :1].repeat(3, 1)
        assert torch.equal(compiled(X, a[0] if a.ndim > 1 else a, n), scaled(X, a[0] if a.ndim > 1 else a, n))


def test_the_same_value_again_is_a_hit() -> None:
    graphs = []
    compiled = torchdynamo.compile(scaled, backend=lambda gm, args: graphs.append(gm) or gm.forward, fullgraph=True)
    for _ in range(3):
        compiled(X, np.array([2.0, 3.0]), np.int64(5))
    assert len(graphs) == 1


def shares(x):
    a = np.zeros(4)
    return x + 1, a, a[:2]


def test_views_stay_views() -> None:
    compiled = torchdynamo.compile(shares, backend="eager")
    for _ in range(2):
        _, a, b = compiled(X)
        b[0] = 5
        assert a[0] == 5


CALLS = []


@functools.wraps(np.sum)
def counted(number):
    CALLS.append(number)
    return len(CALLS) + number


class Scaled:
    def __init__(self, scale):
        functools.update_wrapper(self, np.mean)
        self.scale = scale

    def __call__(self, number):
        return self.scale * number


SCALED = Scaled(2)


def test_what_wraps_a_function_of_numpy_is_followed():
    def wrapped(x):
        return x * counted(1) + SCALED(2)

    compiled, x = torchdynamo.compile(wrapped, backend="eager", fullgraph=True), torch.ones(2)
    for calls, scale in ((0, 2), (5, 3), (1, 4)):
        CALLS[:], SCALED.scale = [None] * calls, scale
        wanted, done = wrapped(x), list(CALLS)
        CALLS[:] = [None] * calls
        assert torch.equal(compiled(x), wanted)
        assert done == CALLS

"""NumPy on what tensors hold: in whole graphs it is NumPy itself that runs, so results are its own to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import torchdynamo
from torchdynamo.errors import Unsupported

W = np.arange(3, dtype=np.float32)
X = torch.rand(2, 3) * 3


def there_and_back(x):
    m = np.sin(x.numpy()) + np.float32(1)
    return torch.from_numpy(m), m, m.shape, m.sum(axis=0)


def views_of_a_tensor(x):
    a = x.numpy()
    return a, a.T, a.reshape(-1), a[0], a[:, 1:], a.dtype, len(a), a.ndim, a.strides, x.T.numpy().strides


def written_copies(x):
    a = x.numpy().copy()
    a[0] = 5
    a += 1
    a[a > 3] = 0
    b = a
    b *= 2
    return a, b is a, torch.from_numpy(a).add_(1)


def written_in_place(x):
    a = np.zeros(3, dtype=np.float32)
    b = c = a
    b *= 2
    c = np.asarray(c)
    return b is a, c is a, np.add(a, 0, out=a) is a, a * 2 is a, x + torch.from_numpy(a)


def rows_and_constants(x):
    a = x.numpy()
    return [row.sum() for row in a], np.stack([a, a * 2]), np.concatenate([a, W[None]]), W @ a.T, a / W.max()


def numbers(x):
    s = x.numpy().sum()
    return x * s, s + 1, 2 * s, 2.5 - s, s.dtype, torch.tensor(s), -s, s > 1, np.float32(2) * s, s * W


def functions(x):
    a = x.numpy()
    square = a[:, :2] @ a[:, :2].T + np.eye(2)
    return np.where(a > 1, a, 0), np.linalg.norm(a), np.linalg.inv(square), np.argmax(a), a.argmax(1), np.clip(a, 0, 1)


def more_functions(x):
    a = (x * 2).numpy()
    return np.fft.fft(a[0]), np.einsum("ij,kj->ik", a, a), np.pad(a, 1), np.sort(a, axis=1), np.split(a, 3, axis=1)


def types(x):
    a = x.numpy()
    return (
        isinstance(a, np.ndarray),
        isinstance(a.sum(), np.floating),
        a.astype(np.int64),
        a.astype(int),
        a.astype("f8"),
    )


def by_force(x):
    a = (x * 1).requires_grad_().numpy(force=True)
    return torch.as_tensor(np.exp(a)) + torch.tensor(a.mean(0))


def written_after(x):
    a = x.detach().numpy()
    x.add_(1)
    return a


def as_a_number(x):
    return float(x.numpy().sum())


def written_through(x):
    x.numpy()[0] = 7
    return x + 1


def written_behind(x):
    return torch.from_numpy(x.numpy()).add_(1)


def with_gradients(x):
    try:
        (x * 2).requires_grad_().numpy()
    except RuntimeError as error:
        return x, str(error)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides) and np.array_equal(a, b)
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.dtype == b.dtype
    return type(a) is type(b) and bool(a == b)


ROWS = [
    *(
        there_and_back,
        views_of_a_tensor,
        written_copies,
        written_in_place,
        rows_and_constants,
        numbers,
        functions,
        more_functions,
    ),
    *(types, by_force, written_after, as_a_number, written_through, written_behind, with_gradients),
]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", ROWS)
def test_as_eager(fn: Any, backend: str) -> None:
    whole = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    for compiled in (whole, whole, torchdynamo.compile(fn, backend=backend)):
        mine, theirs = X.clone(), X.clone()
        assert same(fn(theirs), compiled(mine)) and torch.equal(mine, theirs)


def test_memory_is_shared() -> None:
    compiled = torchdynamo.compile(views_of_a_tensor, backend="eager", fullgraph=True)
    x = X.clone()
    whole, turned, *_ = compiled(x)
    x.zero_()
    assert not whole.any() and np.shares_memory(whole, turned)


def masked(x):
    a = x.numpy()
    return a[a > 1]


def of_unknown_length(x):
    a = x.numpy()
    return a[: a.argmax()]


def nonzero(x):
    return np.nonzero(x.numpy())


def branch(x):
    return x + 1 if x.numpy().sum() > 1 else x


@pytest.mark.parametrize("fn", [masked, of_unknown_length, nonzero, branch])
def test_what_contents_decide(fn: Any) -> None:
    with pytest.raises(Unsupported):
        torchdynamo.compile(fn, backend="eager", fullgraph=True)(X.clone())
    mine, theirs = X.clone(), X.clone()
    assert same(fn(theirs), torchdynamo.compile(fn, backend="eager")(mine)) and torch.equal(mine, theirs)


def test_layout_of_what_existed() -> None:
    """What is computed of an array that existed lies as what eager Python computes."""
    turned = np.arange(6.0).reshape(2, 3).T

    def fn(x):
        return x + 1, turned.strides, turned * 2, np.sort(turned, axis=0), turned.astype(np.float32)

    torchdynamo.reset()
    assert same(fn(X), torchdynamo.compile(fn, backend="eager")(X))


def test_parts_of_what_existed() -> None:
    """A view of an array that is given is a view of it."""

    def fn(x, a):
        return x + 1, a[1:], a * 2, a[:0]

    torchdynamo.reset()
    compiled, a = torchdynamo.compile(fn, backend="eager"), np.arange(4.0)
    for _ in range(2):
        _, part, double, _ = compiled(X, a)
        assert np.shares_memory(part, a) and not np.shares_memory(double, a)
        assert same(fn(X, a), compiled(X, a))

"""Programs that compute with NumPy between torch's operators, as users write them, with what each is called with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch


class NumpyProgram(NamedTuple):
    """One function, what makes its arguments, and whether it is one whole graph."""

    fn: Callable[..., Any]
    args: Callable[[], tuple[Any, ...]]
    whole: bool


PROGRAMS: dict[str, NumpyProgram] = {}
WEIGHTS = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
LOOKUP = np.array([2, 1, 0, 1])
BIG = np.arange(20_000, dtype=np.float32)


def tensor() -> tuple[Any, ...]:
    return (torch.randn(3, 4),)


def two() -> tuple[Any, ...]:
    return torch.randn(3, 4), torch.randn(3, 4)


def array() -> tuple[Any, ...]:
    return torch.randn(3, 4), np.random.RandomState(torch.randint(99, ()).item()).rand(3, 4).astype(np.float32)


def numbers() -> tuple[Any, ...]:
    return (torch.randint(-5, 5, (3, 4)),)


def program(args: Callable[[], tuple[Any, ...]] = tensor, *, whole: bool = True) -> Callable[..., Any]:
    def register(fn: Any) -> Any:
        PROGRAMS[fn.__name__] = NumpyProgram(fn, args, whole)
        return fn

    return register


# -- there and back -------------------------------------------------------------------------------------------------
@program()
def to_numpy(x):
    return (x * 2).numpy()


@program()
def to_numpy_of_a_detached(x):
    return x.sin().detach().cpu().numpy()


@program()
def asarray(x):
    return np.asarray(x * 2)


@program()
def array_of(x):
    return np.array(x.cos()), np.array(x, dtype=np.float64), np.array(x, copy=True)


@program()
def from_numpy(x):
    return torch.from_numpy((x * 2).numpy() + 1) * x


@program()
def as_tensor(x):
    a = np.exp(x.numpy())
    return torch.as_tensor(a) + torch.tensor(a) + torch.as_tensor(a, dtype=torch.float64) + torch.asarray(a)


@program()
def tensor_of_array(x):
    return torch.Tensor(x.numpy() * 2), torch.FloatTensor(np.ones(3, np.float32)) + x[:, 0]


@program()
def tensor_and_array(x):
    return x * x.numpy(), x + WEIGHTS, x.numpy() + 1


@program()
def from_dlpack_view(x):
    return torch.from_numpy(x.numpy().T)


@program()
def shares_with_input(x):
    a = x.numpy()
    return a, a[1:], x[0]


@program()
def view_of_a_view(x):
    return x.t()[1:].numpy(), x.numpy().T[1:]


# -- elementwise ----------------------------------------------------------------------------------------------------
@program()
def arithmetic(x):
    a = x.numpy()
    return torch.from_numpy((a + 1) * 2 - a / 3 + a * a - 1 / (a + 5))


@program()
def powers(x):
    a = np.abs(x.numpy())
    return torch.from_numpy(a**2 + a**0.5 + np.sqrt(a) + np.power(a, 3))


@program()
def transcendental(x):
    a = x.numpy()
    return torch.from_numpy(np.exp(a) + np.log1p(np.abs(a)) + np.tanh(a) + np.sin(a) + np.arctan2(a, 2))


@program()
def compared(x):
    a = x.numpy()
    return torch.from_numpy((a > 0) & (a < 1) | ~(a >= -1)), (a == 0).any(), (a != a).all()


@program()
def where(x):
    a = x.numpy()
    return x + torch.from_numpy(np.where(a > 0, a, -a)), np.where(a > 0, 1, 0)


@program()
def clipped(x):
    a = x.numpy()
    return torch.from_numpy(np.clip(a, -0.5, 0.5)), a.clip(0, 1), np.maximum(a, 0), np.minimum(a, 0.5)


@program()
def normalized(x):
    a = x.numpy()
    a = (a - a.mean()) / (a.std() + 1e-8)
    return torch.from_numpy(a).relu()


@program()
def softmax(x):
    a = x.numpy()
    e = np.exp(a - a.max(axis=-1, keepdims=True))
    return torch.from_numpy(e / e.sum(axis=-1, keepdims=True)) @ x.t()


@program()
def image(x):
    a = (x.clamp(0, 1) * 255).to(torch.uint8).numpy()
    a = a[..., ::-1].copy()
    return torch.from_numpy(a.transpose(1, 0)).float() / 255


@program()
def types(x):
    a = x.numpy()
    return a.astype(np.float64) + 1, a.astype(int), (a > 0).astype(np.float32), a + np.float64(1), a * np.float32(2)


@program(numbers)
def integers(n):
    a = n.numpy()
    return a + 1, a * a, a / 2, a // 2, a % 3, a << 1, a & 3, -a, np.abs(a), a**2


@program(numbers)
def promoted(n):
    a = n.numpy().astype(np.int8)
    return a + 1, a * 1.5, a + np.int32(3), a + np.uint8(1), a / 2


@program()
def rounded(x):
    a = x.numpy() * 10
    return np.round(a, 1), np.floor(a), np.ceil(a), np.trunc(a), np.rint(a), a.round()


@program()
def complex_numbers(x):
    a = x.numpy() + 1j
    return np.abs(a), a.real, a.imag, np.angle(a), a.conj()


# -- reductions -----------------------------------------------------------------------------------------------------
@program()
def sums(x):
    a = x.numpy()
    return np.sum(a), a.sum(0), np.mean(a, axis=1), a.var(), np.std(a, axis=0), np.prod(a), np.median(a)


@program()
def extremes(x):
    a = x.numpy()
    return a.max(), np.min(a, axis=0), np.argmax(a), a.argmin(axis=1), np.ptp(a), np.argsort(a, axis=1)


@program()
def scalar_used(x):
    return x * x.numpy().mean(), x / np.max(x.numpy()), x + np.float32(2) * x.numpy().sum()


@program()
def number(x):
    return x * float(x.numpy().mean())


@program()
def item(x):
    return x * x.numpy().max().item()


@program(whole=False)
def branch_on_contents(x):
    a = x.numpy()
    return x + 1 if a.max() > 0.5 else x - 1


@program()
def percentiles(x):
    a = x.numpy()
    return np.percentile(a, 90), np.quantile(a, [0.1, 0.9]), np.median(a, axis=0)


@program()
def cumulated(x):
    a = x.numpy()
    return torch.from_numpy(np.cumsum(a, axis=1)), np.diff(a), np.cumprod(a[0])


@program(whole=False)
def histogram(x):
    return np.histogram(x.numpy(), bins=4, range=(-2, 2))


# -- shapes ---------------------------------------------------------------------------------------------------------
@program()
def shapes(x):
    a = x.numpy()
    return (
        a.reshape(2, 6),
        a.ravel(),
        a.T,
        a[None],
        a[:, np.newaxis],
        np.expand_dims(a, 0),
        a.swapaxes(0, 1),
        a.flatten(),
    )


@program()
def joined(x):
    a = x.numpy()
    return np.concatenate([a, a]), np.stack([a, a * 2], axis=1), np.vstack([a, WEIGHTS]), np.hstack([a, a])


@program()
def split(x):
    return [torch.from_numpy(part) for part in np.split(x.numpy(), 2, axis=1)]


@program()
def padded(x):
    return torch.from_numpy(np.pad(x.numpy(), ((1, 1), (0, 2)))), np.tile(x.numpy(), 2), np.repeat(x.numpy(), 2, axis=0)


@program()
def flipped(x):
    a = x.numpy()
    return np.flip(a, 0).copy(), a[::-1].copy(), np.roll(a, 1, axis=1), np.rot90(a).copy()


@program()
def indexed(x):
    a = x.numpy()
    return a[0], a[-1, 1:3], a[..., 0], a[::2], a[LOOKUP[:2]], a[[0, 2]], a[:, LOOKUP]


@program()
def sized(x):
    a = x.numpy()
    return x.new_zeros(a.shape) + a.size, len(a), a.ndim, a.nbytes


@program(whole=False)
def masked(x):
    a = x.numpy()
    return a[a > 0], np.nonzero(a > 0), np.argwhere(a > 0)


@program(whole=False)
def unique(x):
    return np.unique(x.numpy())


@program()
def loops(x):
    return [torch.from_numpy(row * 2).sum() for row in x.numpy()]


@program()
def iterated(x):
    return [a.sum() for a, b in zip(x.numpy(), WEIGHTS, strict=True)], np.array([row[0] for row in x.numpy()])


@program()
def grids(x):
    ys, xs = np.meshgrid(np.arange(3), np.arange(4), indexing="ij")
    return x * torch.from_numpy(ys + xs), np.indices((3, 4)).sum() + x


# -- libraries ------------------------------------------------------------------------------------------------------
@program()
def linear_algebra(x):
    a = x.numpy()
    square = a @ a.T + np.eye(3, dtype=np.float32)
    return np.linalg.inv(square), np.linalg.norm(a), np.linalg.det(square), np.linalg.svd(a)[1], np.dot(a, a.T)


@program()
def transforms(x):
    spectrum = np.fft.rfft(x.numpy(), axis=1)
    return torch.from_numpy(np.fft.irfft(spectrum, axis=1)), np.abs(spectrum), np.fft.fftfreq(4)


@program()
def einsum(x):
    return torch.from_numpy(np.einsum("ij,kj->ik", x.numpy(), WEIGHTS)), np.outer(x[0].numpy(), WEIGHTS[0])


@program()
def interpolated(x):
    return np.interp(x.numpy(), [-1.0, 0.0, 1.0], [0.0, 1.0, 4.0]), np.searchsorted(
        np.array([-1.0, 0.0, 1.0]), x.numpy()
    )


@program()
def sorted_(x):
    a = x.numpy()
    order = np.argsort(-a, axis=1)
    return torch.from_numpy(np.take_along_axis(a, order, axis=1)), torch.gather(x, 1, torch.from_numpy(order))


@program()
def not_a_number(x):
    a = np.where(x.numpy() > 0, np.nan, x.numpy())
    return np.nan_to_num(a), np.isnan(a), np.nanmean(a), np.isfinite(a).all()


# -- writes ---------------------------------------------------------------------------------------------------------
@program()
def written_copy(x):
    a = x.numpy().copy()
    a[0] = 0
    a[:, 1] += 1
    a[a > 1] = 1
    a *= 2
    return torch.from_numpy(a)


@program()
def written_through(x):
    a = x.numpy()
    a[0] = 7
    a += 1
    return x * 2


@program()
def written_of_a_result(x):
    y = x * 2
    y.numpy()[0] = 1
    return y + 1


@program()
def written_by_torch(x):
    a = x.numpy()
    x.mul_(2)
    b = a + 1
    x[0] = 3
    return a, b


@program()
def written_behind(x):
    t = torch.from_numpy(x.numpy())
    t.add_(1)
    return x, t


@program()
def written_fresh(x):
    out = np.zeros((3, 4), dtype=np.float32)
    out[1:] = x.numpy()[1:]
    out[0, 0] = 5
    return torch.from_numpy(out) + x


@program()
def out_argument(x):
    a, out = x.numpy(), np.empty_like(x.numpy())
    np.multiply(a, 2, out=out)
    np.add(out, 1, out=out)
    return torch.from_numpy(out), np.sqrt(np.abs(a), out=out) is out


def small():
    return (torch.tensor([100, 2, 3], dtype=torch.int8), torch.tensor([1.0, 0.0], requires_grad=True))


@program(small)
def scalars_warn_as_scalars(n, x):
    i, f = n.numpy()[0], x.detach().numpy()
    return i * i, i + np.int8(100), i * 2, -i, f[0] / f[1], f[0] % f[1], f / f[1], divmod(i, n.numpy()[1]), i < f[0]


@program(small)
def where_no_gradients_are_asked_for(n, x):
    with torch.no_grad():
        try:
            return x.numpy() + 1
        except RuntimeError:
            return "raised"


@program()
def constants_lie_as_they_do(x):
    a = x.numpy()
    turned = np.arange(12.0, dtype=np.float32).reshape(4, 3).T
    spread = np.arange(24.0).reshape(3, 8)[:, ::2]
    back = np.arange(4.0)[::-1]
    same = np.broadcast_to(np.arange(3.0)[:, None], (3, 4))
    one = np.zeros((0, 3)), np.zeros((2, 0, 1), np.int8)
    return a * turned, a.T * turned.T, a + spread, a - back, a / same, a[:1, :1] + one[0], a[0, 0] + one[1]


@program()
def out_by_position(x):
    a, out, fresh = x.numpy(), np.empty((3, 4), np.float32), np.zeros(4, np.float32)
    np.add(a, 1, out)
    a.clip(0, 1, a)
    totals = np.sum(a, 0, None, fresh)
    return out, x + 1, totals is fresh, fresh


@program()
def turned_constant(x):
    a = np.arange(12, dtype=np.float32).reshape(4, 3).T
    return torch.from_numpy(a), torch.from_numpy(a) * 2, torch.tensor(a)


@program()
def copied_to(x):
    out = np.zeros((3, 4), np.float32)
    np.copyto(out, x.numpy())
    x.numpy().fill(2)
    return out, x + 1


# -- arrays from outside --------------------------------------------------------------------------------------------
@program(array)
def argument(x, a):
    return x + torch.from_numpy(a)


@program(array)
def argument_computed(x, a):
    return x * torch.as_tensor(a * 2 + 1).sum(), a.mean(axis=0)


@program(array)
def argument_returned(x, a):
    return x + 1, a, a[1:]


@program(array)
def argument_written(x, a):
    a[0] = x.numpy()[0]
    a += 1
    return x + torch.from_numpy(a)


@program(array)
def argument_shared(x, a):
    t = torch.from_numpy(a)
    t.mul_(2)
    return t, x + t


@program()
def closed_over_large(x):
    return x + torch.from_numpy(BIG)[:4], BIG[:3]


@program(lambda: (torch.randn(3, 4), [np.ones(4, np.float32), np.zeros(4, np.float32)]))
def arguments_in_a_list(x, arrays):
    return x + torch.from_numpy(np.stack(arrays)).sum(0), torch.tensor(np.array(arrays))


@program(lambda: (torch.randn(3, 4), np.arange(3)))
def index_array(x, index):
    return x[index], x[torch.from_numpy(index)]


# -- errors, warnings, random numbers -------------------------------------------------------------------------------
@program(lambda: (torch.zeros(3),))
def divided_by_zero(x):
    a = x.numpy()
    return 1 / a, np.log(a), a / a


@program(lambda: (torch.zeros(3, 3),))
def singular(x):
    return torch.from_numpy(np.linalg.inv(x.numpy()))


@program(whole=False)
def wrong_shapes(x):
    return x.numpy() + np.ones(3)


@program(lambda: (torch.randn(3, requires_grad=True),))
def with_gradient(x):
    return (x * 2).numpy()


@program(lambda: (torch.randn(3, 4, requires_grad=True),))
def detached(x):
    scale = x.detach().numpy().max(axis=0)
    return (x / torch.from_numpy(scale)).sum()


@program()
def drawn(x):
    return x + torch.from_numpy(np.random.rand(3, 4)), np.random.randint(9)


@program()
def drawn_by_a_generator(x):
    return x.numpy() + np.random.default_rng(3).normal(size=(3, 4)), x + 1


@program()
def noise_added(x):
    return torch.from_numpy(x.numpy() + np.random.RandomState(0).randn(3, 4).astype(np.float32))


# -- whole steps ----------------------------------------------------------------------------------------------------
@program(two)
def accuracy(logits, labels):
    predicted = logits.argmax(1).numpy()
    wanted = labels.argmax(1).numpy()
    return (predicted == wanted).mean(), np.sum(predicted == wanted) / len(wanted)


@program(lambda: (torch.rand(5, 4) * 10, torch.rand(5)))
def overlaps(boxes, scores):
    b = boxes.numpy()
    area = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    left = np.maximum(b[:, None, :2], b[None, :, :2])
    right = np.minimum(b[:, None, 2:], b[None, :, 2:])
    size = np.clip(right - left, 0, None)
    inter = size[..., 0] * size[..., 1]
    return torch.from_numpy(inter / (area[:, None] + area - inter)), scores.numpy().argsort()[::-1].copy()


@program()
def window(x):
    w = np.hanning(4).astype(np.float32)
    return x * torch.from_numpy(w), torch.tensor(np.cos(2 * math.pi * np.arange(4) / 4)) + x.double()


@program(whole=False)
def metrics(x):
    a, y = x.numpy(), torch.sigmoid(x)
    return {"mean": a.mean(), "abs": np.abs(a).max(), "rows": a.sum(axis=1).tolist()}, y

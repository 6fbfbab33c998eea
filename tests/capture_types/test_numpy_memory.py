"""Arrays that share memory with tensors, arguments and each other: what is written is seen, in each later call too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from test_numpy_programs import seen

import torchdynamo

TOTALS = np.zeros(4, np.float32)
BIG = np.arange(50_000, dtype=np.float32)


def apart() -> tuple[Any, Any]:
    TOTALS[:], BIG[:] = 0, np.arange(50_000)
    return torch.arange(12.0).reshape(3, 4), np.arange(12, dtype=np.float32).reshape(3, 4)


def overlapping() -> tuple[Any, Any]:
    x = apart()[0]
    return x, x.numpy()


def turned() -> tuple[Any, Any]:
    x, a = apart()
    return x, a[::-1]


def read_only() -> tuple[Any, Any]:
    x, a = apart()
    a.flags.writeable = False
    return x, a


def invertible() -> tuple[Any, Any]:
    x, a = apart()
    x.zero_()[:, :3] += torch.eye(3) * 3
    return x, a


def singular() -> tuple[Any, Any]:
    x, a = apart()
    return x.zero_().sub_(1), a


def written_on_both_sides(x, a):
    x.add_(1)
    a += 1
    y = x * 2
    a[0] = 5
    return y, x + 1, torch.from_numpy(a) + 1


def read_around_a_write(x, a):
    b = a * 2
    x.add_(1)
    c = a + 1
    return b, c, x * 2


def raises_after_writes(x, a):
    x.numpy()[0] += 1
    a += 1
    return torch.from_numpy(np.linalg.inv(x.numpy()[:3, :3])) + 1


def catches_after_writes(x, a):
    x.numpy()[0] += 1
    try:
        np.linalg.inv(x.numpy()[:3, :3])
    except np.linalg.LinAlgError:
        return x * 2
    return x * 3


def catches_errors_of_floats(x, a):
    with np.errstate(divide="raise"):
        try:
            return 1 / (x.numpy() * 0)
        except FloatingPointError:
            return x


def made_and_shared(x, a):
    b = np.zeros(4, np.float32)
    t = torch.from_numpy(b)
    b[1] = 3
    t.add_(x[0])
    b += 1
    return t, b, x + t


def part_of_a_result(x, a):
    b = x.numpy() * 2
    row = b[1]
    t = torch.from_numpy(row)
    t.mul_(3)
    b[1, 0] = 9
    return b, t, row


def view_of_another_type(x, a):
    bits = x.numpy().view(np.int32)
    bits[0] = 0
    return bits, x + 1


def in_turn(x, a):
    x[0] = torch.from_numpy(a[0])
    x[:, 1] += 2
    b = x.numpy()
    b[2] = 7
    y = x.clone()
    x.zero_()
    return b, y, x


def of_the_module(x, a):
    TOTALS[:] += x[0].numpy()
    BIG[0] += 1
    return x + torch.from_numpy(TOTALS) * BIG[0], TOTALS, BIG[1:3]


def across_breaks(x, a):
    b = x.numpy() * 2
    torchdynamo.graph_break()
    b += 1
    x.numpy()[0] = 1
    torchdynamo.graph_break()
    return b, x, torch.from_numpy(b)


def result_that_has_gradients(x, a):
    y = (x.requires_grad_() * 2).exp()
    y.detach().numpy()[0] = 1
    return y.sum()


def axis_that_contents_decide(x, a):
    return a.sum(axis=np.argmax(x.numpy()[0, :2])), x + 1


def operators_with_tensors(x, a):
    return x + a, x.long() * a, 1 - a + x, x[0].int() / a.astype(np.float64), x > a


PROGRAMS: list[tuple[Callable[..., Any], tuple[Callable[[], tuple[Any, Any]], ...]]] = [
    (written_on_both_sides, (overlapping, overlapping, apart)),
    (written_on_both_sides, (apart, apart, overlapping, turned, read_only, apart)),
    (written_on_both_sides, (turned, apart, read_only)),
    (written_on_both_sides, (read_only, apart, overlapping)),
    (read_around_a_write, (overlapping, apart)),
    (read_around_a_write, (apart, apart, overlapping, turned)),
    (raises_after_writes, (invertible, singular, invertible, singular)),
    (catches_after_writes, (invertible, singular, invertible)),
    (of_the_module, (apart, apart, apart)),
    (axis_that_contents_decide, (apart, singular)),
    (result_that_has_gradients, (apart, apart)),
    (operators_with_tensors, (apart, apart)),
    (catches_errors_of_floats, (apart, apart)),
    *((each, (apart, overlapping, apart)) for each in (made_and_shared, part_of_a_result, view_of_another_type)),
    *((each, (apart, overlapping, apart)) for each in (in_turn, across_breaks)),
]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(("program", "calls"), PROGRAMS, ids=lambda each: getattr(each, "__name__", ""))
def test_as_eager(program: Any, calls: Any, backend: str) -> None:
    torchdynamo.reset()
    compiled = torchdynamo.compile(program, backend=backend)
    for make in calls:
        wanted = seen(program, make())
        assert seen(compiled, make()) == wanted

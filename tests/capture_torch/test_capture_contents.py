"""`torch.tensor` of lists with tensors in them: one graph, with the dtype, numbers and errors of eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from counting import Counting

import torchdynamo

FLOATS, INTEGERS, LONG = torch.tensor([0.1, 2.5, -3.0]), torch.tensor([3, -1, 7]), torch.tensor([2**62 + 1, 5])
WHOLE = {
    "alone": (lambda x: torch.tensor([x.max() + 1]), INTEGERS),
    "with an integer": (lambda x: torch.tensor([x.max(), 2]), INTEGERS),
    "with a float": (lambda x: torch.tensor([x.max(), 2.5]), INTEGERS),
    "alone, not in a list": (lambda x: torch.tensor(x.mean()), FLOATS),
    "alone, as another dtype": (lambda x: torch.tensor(x[0], dtype=torch.float64), FLOATS),
    "nested": (lambda x: torch.tensor(((x[0], 1), [2.5, x[1]])), FLOATS),
    "of two dtypes": (lambda x: torch.tensor([x[0], x.sum().long()]), FLOATS),
    "a truth": (lambda x: torch.tensor([x.sum() > 0, True]), FLOATS),
    "a truth and a number": (lambda x: torch.tensor([x.sum() > 0, 3]), FLOATS),
    "rounded by way of a double": (lambda x: torch.tensor([x[0], x[1]], dtype=torch.float32), LONG),
    "of half precision": (lambda x: torch.tensor([x[0], x[1]]), FLOATS.half()),
    "of unknown length before": (lambda x: torch.tensor([x[x > 0].max(), 0]), INTEGERS),
    "nested deeper": (lambda x: torch.tensor([[[x[0], x[1], 1]], [[2, x[2], 3]]]), FLOATS),
    "on a device": (lambda x: torch.tensor([x[0]], device=x.device).unsqueeze(1), INTEGERS),
    "not an alias": (lambda x: (torch.tensor([x[0], 1]).mul_(2), x[0]), INTEGERS),
}


@pytest.mark.filterwarnings("ignore:To copy construct")  # as eager says of a tensor alone
@pytest.mark.parametrize(("fn", "x"), WHOLE.values(), ids=WHOLE)
def test_one_graph(fn: Any, x: torch.Tensor) -> None:
    backend = Counting()
    compiled = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    for given in (x, x.flip(0)):
        expected, got = fn(given), compiled(given)
        for one, other in zip(
            *((each if isinstance(each, tuple) else (each,)) for each in (expected, got)), strict=True
        ):
            assert one.dtype is other.dtype and one.stride() == other.stride() and torch.equal(one, other)
            assert one.shape == other.shape and one._is_view() == other._is_view()
    assert len(backend.graphs) == 1


ABSENT = torch.accelerator.device_count()
OTHERWISE = {
    "a float as an integer": (lambda x: torch.tensor([x[0]], dtype=torch.int64), FLOATS),
    "too large": (lambda x: torch.tensor([x[0]], dtype=torch.int8), LONG),
    "on a device by its number": (lambda x: torch.tensor([x[0], 0.1], device=ABSENT), FLOATS),
    "on a device without a name": (lambda x: torch.tensor([x[0], 0.1], device=""), FLOATS),
    "of no dtype": (lambda x: torch.tensor([x[0], 0.1], dtype=0), FLOATS),
    "several elements": (lambda x: torch.tensor([x, x]), FLOATS),
    "of unequal length": (lambda x: torch.tensor([[x[0], x[1]], [x[0]]]), FLOATS),
    "an integer beyond 64 bits": (lambda x: torch.tensor([x[0], 2**70]), INTEGERS),
    "of a batch": (lambda x: torch.func.vmap(lambda each: torch.tensor([each]))(x), FLOATS),
}


@pytest.mark.parametrize(("fn", "x"), OTHERWISE.values(), ids=OTHERWISE)
def test_what_is_refused_stays_refused(fn: Any, x: torch.Tensor) -> None:
    compiled = torchdynamo.compile(fn, backend="eager")
    with pytest.raises(Exception) as expected:  # noqa: PT011 - whatever eager raises
        fn(x)
    with pytest.raises(type(expected.value)) as got:
        compiled(x)
    assert str(got.value).splitlines()[0] == str(expected.value).splitlines()[0]


def test_a_gradient_ends_where_it_does_in_eager() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.tensor([x.sum(), 1.0])

    with pytest.warns(UserWarning, match="requires_grad"):
        made = torchdynamo.compile(fn, backend="eager")(FLOATS.clone().requires_grad_())
    assert not made.requires_grad and torch.equal(made, fn(FLOATS))

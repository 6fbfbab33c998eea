"""Numbers that guards read from tensors: what torch says, read from memory where that is all there is to it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from guarding import Guarded, X

from torchdynamo.core.source import Guard, Source

READ = ("item", "__float__", "__int__", "__bool__", "tolist")
NUMBERS = [0, 1, -3, 2.5, math.inf, -math.inf, math.nan, 2**40, 255]
DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64),
    *(
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.bool,
    ),
]
SHAPES: dict[str, Any] = {
    "no dimensions": lambda one: one,
    "one element": lambda one: one.reshape(1, 1),
    "a view": lambda one: torch.stack([one * 0, one, one])[1],
    "several": lambda one: torch.stack([one, one * 0, one]).reshape(3, 1).expand(3, 2),
    "turned": lambda one: torch.stack([one, one * 0]).repeat(3, 1).t()[:, ::2],
    "empty": lambda one: one.reshape(1)[:0],
    "requires a gradient": lambda one: one.clone().requires_grad_() if one.is_floating_point() else one,
    "a parameter": lambda one: torch.nn.Parameter(one, requires_grad=False),
    "negated": lambda one: torch._neg_view(one) if one.dtype.is_floating_point else one,
    "conjugate": lambda one: one.conj(),
    "inference": lambda one: torch.inference_mode()(one.clone)(),
    "sparse": lambda one: one.reshape(1).to_sparse() if one.dtype is torch.float32 else one,
    "meta": lambda one: one.to("meta"),
    "a subclass": lambda one: one.as_subclass(type("Sub", (torch.Tensor,), {})),
}


def of(number: float, dtype: torch.dtype) -> torch.Tensor:
    """A number as a tensor; raises where the dtype does not have it."""
    made = torch.tensor(number, dtype=torch.float64 if dtype.is_floating_point else dtype)
    return made.to(dtype)


def tensors() -> list[tuple[str, torch.Tensor]]:
    found = []
    for dtype in DTYPES:
        for number in NUMBERS:
            try:
                one = of(number, dtype)
            except (RuntimeError, TypeError, ValueError, OverflowError):
                continue
            for name, shape in SHAPES.items():
                try:
                    found.append((f"{name} of {dtype} {number}", shape(one)))
                except (RuntimeError, NotImplementedError):
                    continue
    return found


def said(tensor: torch.Tensor, method: str) -> Any:
    """What torch says; None where it refuses."""
    try:
        return getattr(tensor, method)()
    except Exception:
        return None


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
@pytest.mark.parametrize("method", READ)
def test_what_is_read_is_what_torch_says(method: str) -> None:
    source = Source("method", X, method)
    asked = 0
    for name, tensor in tensors():
        found = Guarded([], bound=[source], x=tensor).fetch()
        wanted = None if type(tensor) not in (torch.Tensor, torch.nn.Parameter) else said(tensor, method)
        if wanted is None:
            assert found is None, name
        else:
            assert found is not None, name
            assert repr(found[0]) == repr(wanted) and type(found[0]) is type(wanted), name
            asked += 1
    assert asked > 200


def test_what_is_read_is_read_each_time() -> None:
    x = torch.zeros(())
    guarded = Guarded([Guard(Source("method", X, "item"), "EQUALS_MATCH", 0.0)], bound=[X], x=x)
    for _ in range(5):
        assert guarded.holds()
        x.add_(1)
        assert not guarded.holds()
        x.zero_()

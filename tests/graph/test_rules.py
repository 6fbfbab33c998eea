"""What operators are said to give, against what torch says by its own means and what eager gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchdynamo.graph import fake_mode, rules

aten = torch.ops.aten


def channels(count: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.rand(count, dtype=dtype) for _ in range(4)]


def norm(x: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool = False) -> tuple[Any, ...]:
    return aten.native_batch_norm.default, (x, weight, bias, mean, var, training, 0.1, 1e-5)


CASES = {
    "images": lambda: norm(torch.rand(2, 3, 4, 5), *channels(3)),
    "rows": lambda: norm(torch.rand(2, 3), *channels(3)),
    "double": lambda: norm(torch.rand(2, 3, 4, dtype=torch.double), *channels(3, torch.double)),
    "without weights": lambda: norm(torch.rand(2, 3, 4), None, None, *channels(3)[:2]),
    "nothing": lambda: norm(torch.rand(0, 3, 4), *channels(3)),
    "channels last": lambda: norm(torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last), *channels(3)),
    "a view": lambda: norm(torch.rand(2, 4, 3).transpose(1, 2), *channels(3)),
    "mixed": lambda: norm(torch.rand(2, 3, 4).bfloat16(), *channels(3)),
    "training": lambda: norm(torch.rand(2, 3, 4), *channels(3), training=True),
    "a view, training": lambda: norm(torch.rand(2, 4, 3).transpose(1, 2), *channels(3), training=True),
    "training by itself": lambda: norm(torch.rand(2, 3, 4), *channels(3)[:2], None, None, training=True),
    "channels last, training": lambda: norm(
        torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last), *channels(3), training=True
    ),
}
ASKED = {"mixed"}  # of these, torch is asked
OTHERWISE = {"a view", "a view, training", "mixed"}  # of these, torch's own rule does not say what eager gives


def described(results: Any) -> list[tuple[Any, ...]]:
    return [(tuple(r.shape), r.stride(), r.dtype, r.device.type, r.requires_grad) for r in results]


def stood_in(mode: FakeTensorMode, args: tuple[Any, ...]) -> list[Any]:
    return [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]


@pytest.mark.parametrize("name", CASES)
def test_what_an_operator_gives(name: str) -> None:
    operator, args = CASES[name]()
    own, torchs = fake_mode.make(None), FakeTensorMode()
    with own:
        given = stood_in(own, args)
        assert (rules.RULES[operator](*given) is None) is (name in ASKED)
        said = described(operator(*given))
    with torchs:
        assert (said == described(operator(*stood_in(torchs, args)))) is (name not in OTHERWISE - ASKED)
    assert (said == described(operator(*args))) is (name not in ASKED)


def test_statistics_of_another_size_are_left_to_torch() -> None:
    mode = fake_mode.make(None)
    operator, args = norm(torch.rand(2, 3, 4), *channels(5))
    with mode, pytest.raises(RuntimeError):
        operator(*stood_in(mode, args))

"""Code of Inductor checks what guards do not see: the gradients that a backward is given."""

from __future__ import annotations

from typing import Any

import torch
from torch import _inductor, nn
from torch._inductor.utils import run_and_get_code

import torchdynamo


def test_only_a_backward_checks_its_inputs() -> None:
    net, x = nn.Sequential(nn.Linear(8, 8), nn.GELU()), torch.randn(2, 8)
    compiled = torchdynamo.compile(net, backend="inductor")

    def step() -> torch.Tensor:
        result = compiled(x)
        result.sum().backward()
        return result

    inductors: Any = _inductor.config
    with inductors.patch(force_disable_caches=True):
        result, (forward, backward) = run_and_get_code(step)
    torch.testing.assert_close(result, net(x))
    assert "assert_size_stride(primals" not in forward
    assert "assert_size_stride(tangents" in backward


def test_other_strides_are_another_version() -> None:
    compiled = torchdynamo.compile(lambda x: x.relu() + 1, backend="inductor", dynamic=False)
    for x in (torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(8, 12)[::2, ::2], torch.randn(6, 6)):
        assert torch.equal(compiled(x), x.relu() + 1)

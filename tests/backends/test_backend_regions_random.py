"""Regions of stacks of equal, random blocks: results and gradients in double precision are those of eager."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import _inductor, nn

import torchdynamo

SIZE = 16
Step = Callable[["Block", torch.Tensor, int], torch.Tensor]


def attend(block: Block, x: torch.Tensor, at: int) -> torch.Tensor:
    q, k, v = block.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def mix(block: Block, x: torch.Tensor, at: int) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([b, a * torch.sigmoid(b)], -1)


STEPS: tuple[Step, ...] = (
    attend,
    mix,
    lambda block, x, at: block.linear[at](x),
    lambda block, x, at: block.norm[at](x),
    lambda block, x, at: F.gelu(x),
    lambda block, x, at: torch.softmax(x, -1) * 3,
    lambda block, x, at: torch.softmax(x @ x.transpose(1, 2) / 4, -1) @ x,
    lambda block, x, at: x.transpose(1, 2).contiguous().relu().transpose(1, 2) + x,
    lambda block, x, at: x - x.mean(1, keepdim=True),
    lambda block, x, at: F.glu(block.wide(x), -1),
    lambda block, x, at: x.clone().mul_(0.5).add_(1),
    lambda block, x, at: x * block.scale,
    lambda block, x, at: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5),
)
ENDS: tuple[Callable[..., torch.Tensor], ...] = (
    lambda x, h, early, extra: x + h,
    lambda x, h, early, extra: h + early * 0.3,
    lambda x, h, early, extra: F.layer_norm(x + h, (SIZE,)),
    lambda x, h, early, extra: x + h * extra,
    lambda x, h, early, extra: h,
)


class Block(nn.Module):
    def __init__(self, steps: list[Step], end: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.steps, self.end = steps, end
        self.linear = nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in range(3))
        self.norm = nn.ModuleList(nn.LayerNorm(SIZE) for _ in range(3))
        self.qkv, self.wide = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, 2 * SIZE)
        self.scale = nn.Parameter(torch.randn(SIZE))

    def forward(self, x: torch.Tensor, extra: torch.Tensor) -> torch.Tensor:
        h = early = x
        for at, step in enumerate(self.steps):
            h = step(self, h, at % 3)
            early = h if at == 1 else early
        return self.end(x, h, early, extra)


class Stack(nn.Module):
    """Blocks, of which the first two results are returned too if their number is odd."""

    def __init__(self, blocks: list[Block]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor, extra: torch.Tensor) -> list[torch.Tensor]:
        results = []
        for block in self.blocks:
            x = block(x, extra)
            results.append(x)
        return [x, *results[: 2 * (len(results) % 2)]]


def trained(fn: Callable[..., Any], net: nn.Module, *inputs: torch.Tensor) -> list[torch.Tensor | None]:
    net.zero_grad()
    given = [each.detach().clone().requires_grad_(each.requires_grad) for each in inputs]
    results = fn(*given)
    sum(each.square().mean() for each in results).backward()
    return [*results, *(each.grad for each in (*given, *net.parameters()))]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(24))
def test_random_blocks(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    steps, end = [draw.choice(STEPS) for _ in range(draw.randint(3, 7))], draw.choice(ENDS)
    net = Stack([Block(steps, end) for _ in range(draw.randint(4, 7))]).double()
    inputs = [torch.randn(2, 5, SIZE, dtype=torch.double, requires_grad=draw.random() < 0.5) for _ in range(2)]
    inductors: Any = _inductor.config
    with torchdynamo.config.patch(regions=True, suppress_errors=False), inductors.patch(force_disable_caches=True):
        compiled = torchdynamo.compile(net, backend="inductor", dynamic=False)
        for _ in range(2):
            torch.testing.assert_close(trained(compiled, net, *inputs), trained(net, net, *inputs))
        with torch.no_grad():
            torch.testing.assert_close(compiled(*inputs), net(*inputs))

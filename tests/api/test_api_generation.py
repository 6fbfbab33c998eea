"""A language model that generates: its cache of keys and values is one longer in every step."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from counting import Counting
from torch import nn

import torchdynamo

WIDE, HEADS, GROUPS, LAYERS, VOCABULARY, TOKENS = 32, 4, 2, 2, 64, 64


class Cache:
    """Keys and values so far, of each layer; empty until a layer is first used."""

    def __init__(self) -> None:
        self.layers: list[tuple[Any, Any]] = []

    def update(self, keys: Any, values: Any, layer: int) -> tuple[Any, Any]:
        if layer == len(self.layers):
            self.layers.append((keys, values))
        else:
            before = self.layers[layer]
            self.layers[layer] = torch.cat([before[0], keys], -2), torch.cat([before[1], values], -2)
        return self.layers[layer]

    def __len__(self) -> int:
        return self.layers[0][0].shape[-2] if self.layers else 0


def turned(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Attention(nn.Module):
    def __init__(self, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        size = WIDE // HEADS
        self.q, self.o = nn.Linear(WIDE, WIDE, bias=False), nn.Linear(WIDE, WIDE, bias=False)
        self.k, self.v = nn.Linear(WIDE, GROUPS * size, bias=False), nn.Linear(WIDE, GROUPS * size, bias=False)

    def forward(self, x: Any, cos: Any, sin: Any, mask: Any, cache: Cache) -> Any:
        shape = (*x.shape[:-1], -1, WIDE // HEADS)
        q, k, v = (part(x).view(shape).transpose(1, 2) for part in (self.q, self.k, self.v))
        k, v = cache.update(turned(k, cos, sin), v, self.layer_idx)
        k, v = k.repeat_interleave(HEADS // GROUPS, 1), v.repeat_interleave(HEADS // GROUPS, 1)
        mixed = F.scaled_dot_product_attention(turned(q, cos, sin), k, v, attn_mask=mask)
        return self.o(mixed.transpose(1, 2).reshape(x.shape))


class Layer(nn.Module):
    def __init__(self, layer_idx: int) -> None:
        super().__init__()
        self.attention, self.up, self.down = Attention(layer_idx), nn.Linear(WIDE, 64), nn.Linear(64, WIDE)
        self.before, self.after = nn.RMSNorm(WIDE), nn.RMSNorm(WIDE)

    def forward(self, x: Any, *rest: Any) -> Any:
        x = x + self.attention(self.before(x), *rest)
        return x + self.down(F.silu(self.up(self.after(x))))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(VOCABULARY, WIDE), nn.RMSNorm(WIDE), nn.Linear(WIDE, VOCABULARY)
        self.layers = nn.ModuleList(Layer(index) for index in range(LAYERS))

    def forward(self, ids: Any, cache: Cache) -> Any:
        past, length = len(cache), ids.shape[1]
        at = torch.arange(past, past + length)
        size = WIDE // HEADS
        angles = at[:, None] * torch.exp(torch.arange(0, size, 2) * (-math.log(10000.0) / size))
        angles = torch.cat([angles, angles], -1)
        mask = torch.arange(past + length)[None, :] <= at[:, None]
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, angles.cos(), angles.sin(), mask, cache)
        return self.head(self.norm(x))


def generate(run: Any, prompt: Any) -> tuple[Any, list[Any]]:
    cache, ids, made, logits = Cache(), prompt, [], []
    with torch.no_grad():
        for _ in range(TOKENS):
            logits.append(run(ids, cache))
            ids = logits[-1][:, -1:].argmax(-1)
            made.append(ids)
    return torch.cat(made, 1), logits


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_every_token_is_eagers_and_three_compiles_are_enough(backend: str) -> None:
    torch.manual_seed(0)
    model, prompt = Llama().eval(), torch.randint(0, VOCABULARY, (2, 11))
    counting = Counting(backend)
    tokens, logits = generate(torchdynamo.compile(model, backend=counting, fullgraph=True), prompt)
    expected_tokens, expected_logits = generate(model, prompt)
    assert torch.equal(tokens, expected_tokens)
    torch.testing.assert_close(logits, expected_logits, rtol=0 if backend == "eager" else 1e-5, atol=1e-6)
    assert len(counting.graphs) <= 3

"""One token at a time: a transformer of two layers of width 64 writes 32 tokens, at batch 1."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from contest import Compile, Program, Run
from torch import nn

LAYERS, WIDTH, HEADS, PLACES, VOCABULARY = 2, 64, 4, 128, 256
TOKENS = 32


class Layer(nn.Module):
    """Attention to what the cache holds, and a gated MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self.before, self.between = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.register_buffer("keys", torch.zeros(1, HEADS, PLACES, WIDTH // HEADS))
        self.register_buffer("values", torch.zeros(1, HEADS, PLACES, WIDTH // HEADS))

    def forward(self, x: torch.Tensor, place: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.view(1, 1, HEADS, -1).transpose(1, 2) for each in self.into(self.before(x)).chunk(3, dim=-1))
        self.keys.index_copy_(2, place, k)
        self.values.index_copy_(2, place, v)
        found = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)
        x = x + self.out(found.transpose(1, 2).reshape(1, 1, WIDTH))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """Returns the likeliest next token, and the scores of all."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(PLACES, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("all_places", torch.arange(PLACES))

    def forward(self, token: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.tokens(token) + self.places(place)
        seen = (self.all_places <= place).view(1, PLACES)
        for layer in self.layers:
            x = layer(x, place, seen)
        scores = self.head(self.norm(x))[0, 0]
        return scores.argmax().view(1, 1), scores


def prepare(compile: Compile) -> Run:
    """Compile the step from one token to the next; a run writes some tokens and returns the scores of the last."""
    torch.manual_seed(0)
    step = compile(Decoder().eval())
    begin, places = torch.zeros(1, 1, dtype=torch.long), list(torch.arange(TOKENS).split(1))

    def write() -> torch.Tensor:
        token = begin
        for place in places:
            token, scores = step(token, place)
        return scores

    return write


PROGRAM = Program(
    title=f"One token at a time: {LAYERS} layers of width {WIDTH}, batch 1",
    about="A compiler's own time per call, which small kernels cannot hide.",
    unit="token",
    units=TOKENS,
    runs=4,
    prepare=prepare,
)

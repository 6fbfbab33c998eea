"""Models whose options `benchmarks/tune.py` searches: of eight kinds, small for a CPU, of usual widths for a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F


class Scale(NamedTuple):
    """Sizes of the models."""

    width: int
    layers: int
    places: int  # in a sequence
    pixels: int  # of a side of an image
    channels: int
    batch: int


SMALL, LARGE = Scale(256, 2, 32, 24, 32, 2), Scale(768, 6, 256, 64, 64, 8)


class Block(nn.Module):
    """Attention and two layers, as in BERT (norms behind) or GPT-2 (norms before, causal)."""

    def __init__(self, width: int, causal: bool, gated: bool = False) -> None:
        super().__init__()
        self.causal, self.gated = causal, gated
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, (8 if gated else 4) * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.unflatten(-1, (4, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, dim=-1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2))

    def layers(self, x: torch.Tensor) -> torch.Tensor:
        if self.gated:
            one, other = self.up(x).chunk(2, dim=-1)
            return self.down(F.silu(one) * other)
        return self.down(F.gelu(self.up(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.causal:
            x = self.norms[0](x + self.attend(x))
            return self.norms[1](x + self.layers(x))
        x = x + self.attend(self.norms[0](x))
        return x + self.layers(self.norms[1](x))


class Mixer(nn.Module):
    """Layers over places and over channels by turns."""

    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.places = nn.Sequential(nn.Linear(places, width), nn.GELU(), nn.Linear(width, places))
        self.channels = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.places(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(x)


class Residual(nn.Module):
    """Two convolutions with batch norms."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.two = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.norms[1](self.two(F.relu(self.norms[0](self.one(x))))))


class Down(nn.Module):
    """Half of a picture's side, what an inner part makes of that, and the whole side again: a U-Net, if nested."""

    def __init__(self, channels: int, inner: nn.Module) -> None:
        super().__init__()
        self.into, self.out = nn.Conv2d(channels, channels, 3, 2, 1), nn.ConvTranspose2d(channels, channels, 2, 2)
        self.before, self.inner, self.after = Residual(channels), inner, Residual(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        return self.after(x + self.out(self.inner(self.into(x))))


class Recommender(nn.Module):
    """Rows of tables, products of all pairs of them, and layers over these: as DLRM."""

    def __init__(self, width: int, tables: int = 8) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(1000, width // 8) for _ in range(tables))
        self.layers = nn.Sequential(
            nn.Linear(tables * tables, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = torch.stack([table(ids[:, at]) for at, table in enumerate(self.tables)], dim=1)
        return torch.sigmoid(self.layers((rows @ rows.mT).flatten(1)))


class Normal(nn.Module):
    """Sums and norms over rows, without a matrix product: what an optimizer or a loss computes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            scaled = x * x.square().mean(-1, keepdim=True).rsqrt()
            x = F.softmax(scaled, dim=-1) + torch.tanh(x).cumsum(-1) / x.shape[-1]
        return x


Made = tuple[nn.Module, torch.Tensor]


def blocks(size: Scale, causal: bool, gated: bool = False, places: int | None = None) -> Made:
    model = nn.Sequential(*(Block(size.width, causal, gated) for _ in range(size.layers)))
    return model, torch.randn(size.batch, places or size.places, size.width)


def logits(size: Scale) -> Made:
    """A last token, and the scores of 50,257 words."""
    return nn.Sequential(nn.LayerNorm(size.width), nn.Linear(size.width, 50257)), torch.randn(size.batch, size.width)


def image(size: Scale) -> torch.Tensor:
    return torch.randn(size.batch, size.channels, size.pixels, size.pixels)


MODELS: dict[str, Callable[[Scale], Made]] = {
    "encoder": lambda size: blocks(size, False),
    "decoder": lambda size: blocks(size, True),
    "gated decoder, one token": lambda size: blocks(size, True, True, 1),
    "scores of words": logits,
    "mixer": lambda size: (
        nn.Sequential(*(Mixer(2 * size.places, size.width) for _ in range(size.layers))),
        torch.randn(size.batch, 2 * size.places, size.width),
    ),
    "convolutions": lambda size: (nn.Sequential(*(Residual(size.channels) for _ in range(size.layers))), image(size)),
    "u-net": lambda size: (Down(size.channels, Down(size.channels, Residual(size.channels))), image(size)),
    "recommender": lambda size: (Recommender(size.width), torch.randint(0, 1000, (64 * size.batch, 8))),
    "norms": lambda size: (Normal(), torch.randn(64, size.width)),
}


def made(name: str, device: str) -> Made:
    """Return a model for inference and its input: in bfloat16 on a GPU."""
    torch.manual_seed(0)
    model, x = MODELS[name](LARGE if device == "cuda" else SMALL)
    for buffer_name, each in model.named_buffers():
        if buffer_name.endswith("running_var"):
            each.uniform_(0.5, 2.0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = model.eval().requires_grad_(False).to(device, dtype)
    return model, x.to(device, dtype) if x.is_floating_point() else x.to(device)

"""Models made of torch.nn alone."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import nn

from torchdynamo.bench.models import add


class UNet(nn.Module):
    """Three levels of convolutions with skip connections, for images of three channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.ModuleList([block(3, width), block(width, 2 * width), block(2 * width, 4 * width)])
        self.up = nn.ModuleList(
            [nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)]
        )
        self.joined = nn.ModuleList([block(4 * width, 2 * width), block(2 * width, width)])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for level in self.down:
            x = level(x)
            skips.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = skips.pop()
        for up, joined in zip(self.up, self.joined):
            x = joined(torch.cat([up(x), skips.pop()], 1))
        return self.head(x)


def block(inside: int, outside: int) -> nn.Module:
    """Return two convolutions with batch norms."""
    layers: list[nn.Module] = []
    for channels in (inside, outside):
        layers += [nn.Conv2d(channels, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class Recurrent(nn.Module):
    """A recurrent layer, and a classifier of its last output."""

    def __init__(self, kind: Callable[..., nn.Module], width: int, layers: int) -> None:
        super().__init__()
        self.layer = kind(64, width, layers, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x)[0][:, -1])


class DetectionHead(nn.Module):
    """Classes and boxes for each place of three feature maps, as one-stage detectors predict them."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.tower = nn.Sequential(
            *(each for _ in range(3) for each in (nn.Conv2d(width, width, 3, padding=1), nn.ReLU(inplace=True)))
        )
        self.classes = nn.Conv2d(width, 9 * classes, 3, padding=1)
        self.boxes = nn.Conv2d(width, 36, 3, padding=1)

    def forward(self, *maps: torch.Tensor) -> torch.Tensor:
        found = [self.tower(each) for each in maps]
        return torch.cat([torch.cat([self.classes(x).flatten(2), self.boxes(x).flatten(2)], 1) for x in found], 2)


class Residual(nn.Module):
    """Layers of a perceptron with residual connections and layer norms."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
            for _ in range(depth)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def mlp(width: int, depth: int) -> nn.Module:
    """Return linear layers with relu between them."""
    layers = [each for _ in range(depth) for each in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def encoder(width: int, heads: int, depth: int) -> nn.Module:
    """Return PyTorch's own transformer encoder."""
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, dropout=0.0)
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)


def autoencoder() -> nn.Module:
    """Return a convolutional autoencoder."""
    down = [nn.Conv2d(3, 16, 3, 2, 1), nn.GELU(), nn.Conv2d(16, 32, 3, 2, 1), nn.GELU()]
    up = [nn.ConvTranspose2d(32, 16, 2, 2), nn.GELU(), nn.ConvTranspose2d(16, 3, 2, 2), nn.Sigmoid()]
    return nn.Sequential(*down, *up)


def features(*shape: int) -> functools.partial[tuple[torch.Tensor, ...]]:
    """Return a maker of one tensor of this shape behind the batch."""
    return functools.partial(_features, shape=shape)


def _features(batch: int, shape: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, *shape),)


def _maps(batch: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(batch, 64, size, size) for size in (32, 16, 8))


add("mlp_small", lambda: mlp(256, 3), features(256))
add("mlp_large", lambda: mlp(1024, 4), features(1024))
add("mlp_residual", lambda: Residual(256, 8), features(256))
add("encoder_small", lambda: encoder(128, 4, 4), features(64, 128))
add("encoder_large", lambda: encoder(384, 6, 6), features(64, 384))
add("lstm", lambda: Recurrent(nn.LSTM, 128, 2), features(32, 64))
add("gru", lambda: Recurrent(nn.GRU, 128, 1), features(32, 64))
add("unet", lambda: UNet(16), features(3, 128, 128))
add("detection_head", lambda: DetectionHead(64, 20), _maps)
add("autoencoder", autoencoder, features(3, 64, 64))

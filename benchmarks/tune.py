"""Search Inductor's options for six small models on the CPU, and measure what was found again, against the default.

    OMP_NUM_THREADS=1 python benchmarks/tune.py --seconds 60      # for each model
    python benchmarks/tune.py --seconds 60 --models mixer convolutions

Each model has hidden size 256 and is searched in a process of its own, with a database of its own. *again* is how many
times faster than the default the choice is, as the median of rounds by turns in CPU seconds, in another process, which
finds the choice in the database; *found in* is what that takes for a graph there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, ROUNDS, SHORTEST = 256, 15, 0.1


class Block(nn.Module):
    """Attention and two layers, as in BERT (norms behind) or GPT-2 (norms before, causal)."""

    def __init__(self, causal: bool, gated: bool = False) -> None:
        super().__init__()
        self.causal, self.gated = causal, gated
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, (8 if gated else 4) * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))

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

    def __init__(self, places: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.places = nn.Sequential(nn.Linear(places, WIDTH), nn.GELU(), nn.Linear(WIDTH, places))
        self.channels = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))

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


class Normal(nn.Module):
    """Sums and norms over rows, without a matrix product: what an optimizer or a loss computes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = F.softmax(x * x.square().mean(-1, keepdim=True).rsqrt(), dim=-1) + torch.tanh(x).cumsum(-1) / WIDTH
        return x


def tokens(length: int = 32) -> torch.Tensor:
    return torch.randn(2, length, WIDTH)


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "encoder": lambda: (nn.Sequential(Block(False), Block(False)), tokens()),
    "decoder": lambda: (nn.Sequential(Block(True), Block(True)), tokens()),
    "gated decoder, one token": lambda: (nn.Sequential(Block(True, True), Block(True, True)), tokens(1)),
    "mixer": lambda: (nn.Sequential(Mixer(64), Mixer(64)), tokens(64)),
    "convolutions": lambda: (nn.Sequential(Residual(32), Residual(32)), torch.randn(2, 32, 24, 24)),
    "norms": lambda: (Normal(), torch.randn(64, WIDTH)),
}


def made(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    model, x = MODELS[name]()
    return model.eval().requires_grad_(False), x


def searched(name: str, seconds: float) -> dict[str, Any]:
    import torchdynamo

    model, x = made(name)
    with torch.no_grad():
        (found,) = torchdynamo.tune(model, [x], seconds=seconds).graphs
    tried = sum(row.timing is not None for row in found.rows)
    return {"choice": found.choice, "gain": found.gain, "tried": tried, "of": len(found.rows)}


def measured(name: str) -> dict[str, Any]:
    """Measure the choice again, and how long it takes to find it."""
    import torchdynamo
    from torchdynamo.backends import option_sets

    model, x = made(name)
    spent: list[float] = []
    choice_for = option_sets.choice_for

    def timed(*args: Any) -> str | None:
        started = time.perf_counter()
        choice = choice_for(*args)
        spent.append(time.perf_counter() - started)
        return choice

    option_sets.choice_for = timed
    runs = {
        "default": torchdynamo.compile(model),
        "tuned": torchdynamo.compile(lambda x: model(x), options={"tuned": True}),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    with torch.no_grad():
        for run in runs.values():
            for _ in range(3):
                run(x)
        started = time.perf_counter()
        runs["default"](x)
        count = max(1, int(SHORTEST / (time.perf_counter() - started)))
        for at in range(ROUNDS):
            for which in sorted(runs, reverse=bool(at % 2)):
                begun = time.process_time()
                for _ in range(count):
                    runs[which](x)
                seconds[which].append((time.process_time() - begun) / count)
    again = statistics.median(a / b for a, b in zip(seconds["default"], seconds["tuned"], strict=True))
    return {"again": again, "us": statistics.median(seconds["default"]) * 1e6, "ms": min(spent, default=0.0) * 1e3}


def in_a_process(part: str, name: str, seconds: float, database: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--part", part, "--models", name, "--seconds", str(seconds)]
    environment = {**os.environ, "TORCHDYNAMO_ENSEMBLE_DB": str(database), "TORCHDYNAMO_CACHE": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seconds", type=float, default=60.0, help="for the search of each model")
    parser.add_argument("--part", choices=("search", "measure"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        (name,) = options.models
        print(json.dumps(searched(name, options.seconds) if options.part == "search" else measured(name)))
        return
    print(
        f"{'model':26}{'choice':26}{'tried':>8}{'found':>8}{'again':>8}{'default us':>12}{'found in ms':>13}",
        flush=True,
    )
    gains = []
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            database = Path(folder, "tuned.sqlite3")
            one = in_a_process("search", name, options.seconds, database)
            two = in_a_process("measure", name, options.seconds, database)
        gains.append(two["again"])
        print(
            f"{name:26}{one['choice']:26}{one['tried']:>5}/{one['of']}{one['gain']:>8.2f}{two['again']:>8.2f}"
            f"{two['us']:>12.0f}{two['ms']:>13.2f}",
            flush=True,
        )
    print(f"geometric mean of 'again': {math.exp(statistics.fmean(map(math.log, gains))):.3f}")


if __name__ == "__main__":
    main()

"""What a training step costs: eager, torch.compile and torchdynamo, side by side in one run.

    python benchmarks/training.py                      # ResNet-18 and a transformer encoder on the CPU
    python benchmarks/training.py --models gpt2        # GPT-2 124M, bfloat16, fused AdamW, on a GPU
    python benchmarks/training.py --csv training.csv

Each measurement is a process of its own, for its own peak memory and its own first call; those of a model take turns,
so that a machine which slows down slows all of them. CPU peaks are the process's resident set beyond what it was before
the first step; CUDA's are the allocator's.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

FRONTENDS = ("eager", "torch.compile", "torchdynamo")
COLUMNS = ("model", "frontend", "ms", "ratio", "first_s", "peak_mib", "loss")
Step = Callable[[], torch.Tensor]


# -- models -----------------------------------------------------------------------------------------------------------
class Residual(nn.Module):
    """Two convolutions and a way round them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.short = nn.Identity()
        if stride != 1 or before != after:
            self.short = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(out + self.short(x))


def resnet18() -> nn.Module:
    """He et al.'s smallest."""
    stages = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
    blocks = [block for a, b, s in stages for block in (Residual(a, b, s), Residual(b, b, 1))]
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """GPT-2 in its smallest size, 124M parameters; input and output embeddings are one."""

    def __init__(self, vocabulary: int = 50304, length: int = 1024, width: int = 768, layers: int = 12) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 12) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def encoder() -> nn.Module:
    """Six layers of PyTorch's own encoder."""
    layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)


# -- one step of each -------------------------------------------------------------------------------------------------
def resnet_step(wrap: Any) -> Step:
    model = resnet18()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(8, 3, 128, 128), torch.randint(0, 1000, (8,))
    return stepping(wrap, optimizer, lambda: F.cross_entropy(model(x), y))


def encoder_step(wrap: Any) -> Step:
    model = encoder()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(8, 64, 256)
    return stepping(wrap, optimizer, lambda: (model(x) - x).pow(2).mean())


def gpt2_step(wrap: Any) -> Step:
    model = GPT2().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.1, fused=True)
    ids = torch.randint(0, 50257, (12, 1025), device="cuda")

    def loss() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(ids[:, :-1])
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))

    return stepping(wrap, optimizer, loss, wrap_step=False)


def stepping(wrap: Any, optimizer: Any, loss_of: Step, wrap_step: bool = True) -> Step:
    """Forward, backward, update; a fused update is one kernel already."""
    forward = wrap(loss_of)
    update = wrap(lambda: optimizer.step()) if wrap_step else optimizer.step

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = forward()
        loss.backward()
        update()
        return loss.detach()

    return step


MODELS: dict[str, tuple[Callable[[Any], Step], int]] = {
    "resnet18": (resnet_step, 10),
    "encoder": (encoder_step, 20),
    "gpt2": (gpt2_step, 30),
}


# -- measuring --------------------------------------------------------------------------------------------------------
def wrapper(frontend: str) -> Any:
    if frontend == "eager":
        return lambda fn: fn
    if frontend == "torch.compile":
        return torch.compile
    import torchdynamo

    return torchdynamo.optimize("inductor")


def resident() -> float:
    """The most memory the process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(model: str, frontend: str, threads: int) -> dict[str, Any]:
    """In this process: the first step, then some more, each timed."""
    make, count = MODELS[model]
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    if model == "gpt2":
        torch.set_float32_matmul_precision("high")
    step = make(wrapper(frontend))
    on_gpu = model == "gpt2"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    before = resident()
    started = time.perf_counter()
    step()
    wait()
    first = time.perf_counter() - started
    for _ in range(3):
        step()
    wait()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(count):
        started = time.perf_counter()
        loss = step()
        wait()
        times.append((time.perf_counter() - started) * 1000)
    peak = torch.cuda.max_memory_allocated() / 2**20 if on_gpu else resident() - before
    return {"ms": statistics.median(times), "first_s": first, "peak_mib": peak, "loss": loss.item()}


def in_a_process(model: str, frontend: str, threads: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", model, frontend, "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{model} with {frontend} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(model: str, frontends: list[str], rounds: int, threads: int) -> list[dict[str, Any]]:
    """One row for each front end: the best of its rounds, with the first call and memory of the first."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in frontends}
    for _ in range(rounds):
        for name in frontends:
            found[name].append(in_a_process(model, name, threads))
    best = {name: min(each["ms"] for each in runs) for name, runs in found.items()}
    base = best.get("eager", next(iter(best.values())))
    return [
        {**runs[0], "model": model, "frontend": name, "ms": best[name], "ratio": base / best[name]}
        for name, runs in found.items()
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--models", nargs="+", choices=MODELS, default=["resnet18", "encoder"])
    options.add_argument("--frontends", nargs="+", choices=FRONTENDS, default=list(FRONTENDS))
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--csv", help="write the table here too")
    options.add_argument("--one", nargs=2, metavar=("MODEL", "FRONTEND"), help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.one:
        print(json.dumps(measure(*chosen.one, chosen.threads)))
        return
    rows = []
    for model in chosen.models:
        for row in compare(model, chosen.frontends, chosen.rounds, chosen.threads):
            rows.append({name: f"{row[name]:.3f}" if isinstance(row[name], float) else row[name] for name in COLUMNS})
            print("".join(f"{rows[-1][name]:>14}" for name in COLUMNS), flush=True)
    if chosen.csv:
        with open(chosen.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()

"""What rewrites gain on a GPU: attention, nanoGPT as it is written, the loss of a large vocabulary, updates in a loop.

    python benchmarks/rewrites_cuda.py                      # all parts, about 90 seconds each at most
    python benchmarks/rewrites_cuda.py loss --device cpu --tiny

attention: how many of the tests' spellings become one operator, and their error against float64 over eager's.
nanogpt: a training step with attention written out and 50,257 words, in bfloat16, and its peak memory.
loss: cross entropy of a linear layer with 131,072 classes, forward and backward, and its peak memory.
optimizer, adam: updates of small parameters in a loop: 200 by SGD, and 50 by Adam with weight decay.
Times are medians of rounds in turns.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCHDYNAMO_CACHE", "0")  # what is measured is captured anew

import torch
from torch.nn import functional as F
from training_models import GPT2

import torchdynamo

Step = Callable[[], Any]
Make = Callable[[Callable[[Any], Any]], Step]
"""Gets what compiles a function; returns a step to measure."""
Part = tuple[Make, list[str]]
"""How a step is made, and which front ends are compared."""
MIB = 2**20
BY_HAND = "torch.compile, by hand"
"""A front end for a program that calls `torch._foreach_*` itself."""
FRONTENDS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda fn: fn,
    "torch.compile": torch.compile,
    "torchdynamo, no rewrites": lambda fn: torchdynamo.compile(fn, options={"rewrites": False}),
    "torchdynamo": torchdynamo.compile,
    "torchdynamo, loss_chunks": lambda fn: torchdynamo.compile(fn, options={"loss_chunks": "auto"}),
    BY_HAND: lambda fn: torch.compile(fn),
}


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def attention(given: argparse.Namespace) -> None:
    """Count the spellings that become one operator, and compare errors."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "backends"))
    from attention_spellings import SPELLINGS
    from attention_tracing import compiled, distance, outcome

    names = list(SPELLINGS)[:6] if given.tiny else list(SPELLINGS)
    for training in (False, True):
        fused, worst, missed = 0, (0.0, ""), []
        for name in names:
            spelling = SPELLINGS[name]
            torch.manual_seed(0)
            dtype = torch.bfloat16 if given.device == "cuda" else spelling.dtype
            heads = [torch.randn(shape).to(given.device, dtype) for shape in spelling.shapes]
            found, traced = compiled(spelling.write, heads, training)
            if not traced.fused[0]:
                missed.append(f"{name}: {'; '.join(traced.lines) or 'nothing was recognized'}")
                continue
            fused += 1
            if name == "dropout" and training:
                continue  # other random numbers
            exact = outcome(spelling.write, [each.double() for each in heads], training)
            eager = outcome(spelling.write, heads, training)
            worst = max(worst, (distance(found, exact) / distance(eager, exact), name))
        kind = "training" if training else "inference"
        print(f"{kind}: {fused} of {len(names)} spellings; largest error over eager's {worst[0]:.2f} ({worst[1]})")
        for line in missed:
            print(f"    {line}", flush=True)


def nanogpt(given: argparse.Namespace) -> tuple[Make, list[str]]:
    """Return how a training step is made, and which front ends are compared."""
    batch, length = (2, 32) if given.tiny else (12, 1024)
    small = {"length": length, "width": 64, "heads": 4, "layers": 2} if given.tiny else {}
    words = 129 if given.tiny else 50257

    def make(compiler: Callable[[Any], Any]) -> Step:
        torch.manual_seed(0)
        model = GPT2(not given.sdpa, vocabulary=words, **small).to(given.device)
        fused = given.device == "cuda"
        optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.1, fused=fused)
        ids = torch.randint(0, words, (batch, length + 1), device=given.device)

        def loss() -> torch.Tensor:
            with torch.autocast(given.device, torch.bfloat16):
                logits = model(ids[:, :-1])
                return F.cross_entropy(logits.view(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))

        forward = compiler(loss)

        def step() -> Any:
            optimizer.zero_grad(set_to_none=True)
            found = forward()
            found.backward()
            optimizer.step()
            return found.detach()

        return step

    return make, ["eager", "torch.compile", "torchdynamo", "torchdynamo, loss_chunks"]


def loss(given: argparse.Namespace) -> tuple[Make, list[str]]:
    """Return how a step is made, and which front ends are compared."""
    rows, width, classes = (64, 32, 1000) if given.tiny else (8192, 1024, 131072)

    def make(compiler: Callable[[Any], Any]) -> Step:
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(classes, width, device=given.device) / width**0.5)
        hidden = torch.randn(rows, width, device=given.device, requires_grad=True)
        labels = torch.randint(0, classes, (rows,), device=given.device)

        def forward() -> torch.Tensor:
            with torch.autocast(given.device, torch.bfloat16):
                return F.cross_entropy(F.linear(hidden, weight), labels)

        run = compiler(forward)

        def step() -> Any:
            weight.grad = hidden.grad = None
            found = run()
            found.backward()
            return found.detach()

        return step

    return make, ["eager", "torch.compile", "torchdynamo", "torchdynamo, loss_chunks"]


def sgd(parameters: list[torch.Tensor], *_: list[torch.Tensor]) -> None:
    for p in parameters:
        p -= 0.01 * p.grad


def sgd_by_hand(parameters: list[torch.Tensor], *_: list[torch.Tensor]) -> None:
    torch._foreach_sub_(parameters, torch._foreach_mul([p.grad for p in parameters], 0.01))


def adam(parameters: list[torch.Tensor], means: list[torch.Tensor], squares: list[torch.Tensor]) -> None:
    for p, m, v in zip(parameters, means, squares):
        m.mul_(0.9).add_(p.grad, alpha=0.1)
        v.mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
        p.mul_(0.999)
        p.addcdiv_(m, v.sqrt() + 1e-8, value=-0.01)


def adam_by_hand(parameters: list[torch.Tensor], means: list[torch.Tensor], squares: list[torch.Tensor]) -> None:
    gradients = [p.grad for p in parameters]
    torch._foreach_mul_(means, 0.9)
    torch._foreach_add_(means, gradients, alpha=0.1)
    torch._foreach_mul_(squares, 0.99)
    torch._foreach_addcmul_(squares, gradients, gradients, 0.01)
    torch._foreach_mul_(parameters, 0.999)
    roots = torch._foreach_sqrt(squares)
    torch._foreach_add_(roots, 1e-8)
    torch._foreach_addcdiv_(parameters, means, roots, -0.01)


def updates(loop: Callable[..., None], by_hand: Callable[..., None], most: int) -> Callable[[argparse.Namespace], Part]:
    """Return a part that compares a loop over parameters with the same on lists."""

    def part(given: argparse.Namespace) -> Part:
        count = min(most, 20) if given.tiny else most

        def make(compiler: Callable[[Any], Any]) -> Step:
            torch.manual_seed(0)
            shapes = [(64 + at % 7, 64) if at % 2 else (64 + at % 7,) for at in range(count)]
            kinds = [[torch.randn(shape).to(given.device) for shape in shapes] for _ in range(3)]
            parameters, gradients, means = kinds
            squares = [torch.zeros_like(each) for each in means]
            for p, gradient in zip(parameters, gradients, strict=True):
                p.requires_grad_().grad = gradient
            chosen = by_hand if compiler is FRONTENDS[BY_HAND] else loop

            @torch.no_grad()
            def update() -> None:
                chosen(parameters, means, squares)

            run = compiler(update)

            def step() -> Any:
                run()
                return parameters[-1].detach().sum()

            return step

        return make, ["eager", "torch.compile", "torchdynamo, no rewrites", "torchdynamo", BY_HAND]

    return part


PARTS: dict[str, Callable[[argparse.Namespace], Part]] = {
    "nanogpt": nanogpt,
    "loss": loss,
    "optimizer": updates(sgd, sgd_by_hand, 200),
    "adam": updates(adam, adam_by_hand, 50),
}


def compare(part: str, given: argparse.Namespace) -> None:
    """Print the time and peak memory of a step for each front end."""
    make, names = PARTS[part](given)
    steps, facts = dict[str, Step](), dict[str, tuple[float, float, float]]()
    for name in names:
        gc.collect()
        began = time.perf_counter()
        steps[name] = step = make(FRONTENDS[name])
        step()
        wait(given.device)
        first = time.perf_counter() - began
        for _ in range(3):
            step()
        peak = 0.0
        if given.device == "cuda":
            held = torch.cuda.memory_allocated()
            own = sum(each for each, _, _ in facts.values())
            torch.cuda.reset_peak_memory_stats()
            step()
            wait(given.device)
            peak = (torch.cuda.max_memory_allocated() - own) / MIB
            facts[name] = (held - own, peak, first)
        else:
            facts[name] = (0.0, peak, first)
    times: dict[str, list[float]] = {name: [] for name in names}
    last: dict[str, float] = {}
    for _ in range(3 if given.tiny else 10):
        for name, step in steps.items():
            wait(given.device)
            began = time.perf_counter()
            found = step()
            wait(given.device)
            times[name].append(time.perf_counter() - began)
            last[name] = float(found)
    print(f"{part:28}{'ms':>9}{'peak MiB':>10}{'first s':>9}{'loss':>10}")
    for name in names:
        milliseconds = statistics.median(times[name]) * 1000
        print(f"{name:28}{milliseconds:9.2f}{facts[name][1]:10.0f}{facts[name][2]:9.1f}{last[name]:10.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"attention, {', '.join(PARTS)}; all of them")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that it works")
    parser.add_argument("--sdpa", action="store_true", help="nanogpt with scaled_dot_product_attention in its source")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_float32_matmul_precision("high")
    for part in given.parts or ["attention", *PARTS]:
        began = time.perf_counter()
        attention(given) if part == "attention" else compare(part, given)
        print(f"    ({part}: {time.perf_counter() - began:.0f} s)\n", flush=True)


if __name__ == "__main__":
    main()

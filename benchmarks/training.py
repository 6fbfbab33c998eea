"""What a training step costs: eager, torch.compile and torchdynamo, side by side in one run.

    python benchmarks/training.py                                  # ResNet-18 and a transformer encoder
    python benchmarks/training.py --models gpt2-naive gpt2-sdpa    # GPT-2 124M, bfloat16, fused AdamW: for a GPU
    python benchmarks/training.py --csv training.csv

Each measurement is a process of its own, with empty caches, for its own first call and its own memory; those of a model
take turns, so that a machine which slows down slows all of them. The peak is the allocator's, in a step after the first
few: all that is alive, parameters and the optimizer's state too. `rss_mib` is the most memory that the process has ever
had, compiling and PyTorch itself included. `ratio` is how much faster than eager.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F
from training_models import GPT2, Encoder, resnet18

FRONTENDS = ("eager", "torch.compile", "torchdynamo")
COLUMNS = ("model", "frontend", "ms", "ratio", "first_s", "peak_mib", "rss_mib", "loss")
MIB = 2**20


class Training(NamedTuple):
    """What is measured: a model, its optimizer, and how a loss comes about."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[[], torch.Tensor]


# -- the models, at full size or tiny ---------------------------------------------------------------------------------
def train_resnet(device: str, tiny: bool) -> Training:
    model = resnet18().to(device)
    batch, size = (2, 32) if tiny else (8, 128)
    x, y = torch.randn(batch, 3, size, size, device=device), torch.randint(0, 1000, (batch,), device=device)
    return Training(model, torch.optim.SGD(model.parameters(), 0.01, 0.9), lambda: F.cross_entropy(model(x), y))


def train_encoder(device: str, tiny: bool, again: bool = False) -> Training:
    layers, width, length = (2, 32, 16) if tiny else (6, 256, 64)
    model = Encoder(layers, width, again).to(device)
    x = torch.randn(8, length, width, device=device)
    return Training(model, torch.optim.AdamW(model.parameters()), lambda: (model(x) - x).pow(2).mean())


def train_gpt2(device: str, tiny: bool, naive: bool) -> Training:
    batch, length = (2, 32) if tiny else (12, 1024)
    small = {"vocabulary": 128, "length": length, "width": 64, "heads": 4, "layers": 2} if tiny else {}
    model = GPT2(naive, **small).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.1, fused=True)
    ids = torch.randint(0, 128 if tiny else 50257, (batch, length + 1), device=device)

    def loss() -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            logits = model(ids[:, :-1])
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))

    return Training(model, optimizer, loss)


class Row(NamedTuple):
    """How to make a training, how many steps are timed, in how many processes."""

    make: Callable[[str, bool], Training]
    steps: int
    rounds: int


MODELS: dict[str, Row] = {
    "resnet18": Row(train_resnet, 10, 2),
    "encoder": Row(train_encoder, 20, 2),
    "encoder-checkpoint": Row(lambda device, tiny: train_encoder(device, tiny, again=True), 20, 2),
    "gpt2-naive": Row(lambda device, tiny: train_gpt2(device, tiny, naive=True), 30, 1),
    "gpt2-sdpa": Row(lambda device, tiny: train_gpt2(device, tiny, naive=False), 30, 1),
}


# -- measuring, in a process of its own -------------------------------------------------------------------------------
def wrapper(frontend: str, backend: str) -> Any:
    if frontend == "eager":
        return lambda fn: fn
    if frontend == "torch.compile":
        return lambda fn: torch.compile(fn, backend=backend)
    import torchdynamo

    return torchdynamo.optimize(backend)


def stepping(training: Training, wrap: Any) -> Callable[[], torch.Tensor]:
    """Forward, backward, update; a fused update is one kernel already."""
    optimizer = training.optimizer
    forward = wrap(training.loss)
    update = optimizer.step if optimizer.defaults.get("fused") else wrap(lambda: optimizer.step())

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = forward()
        loss.backward()
        update()
        return loss.detach()

    return step


def held(training: Training) -> Iterator[torch.Tensor]:
    """What a training keeps from step to step."""
    yield from training.model.parameters()
    yield from training.model.buffers()
    for state in training.optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def peak_on_cpu(training: Training, step: Callable[[], object]) -> float:
    """What is held, and the most that comes on top of it in a step, as the allocator tells the profiler.

    Gradients are let go of before: the profiler does not see the end of what it has not seen begin.
    """
    training.optimizer.zero_grad(set_to_none=True)
    kept = sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held(training)}.values())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    events = [each for each in profile.profiler.kineto_results.events() if each.name() == "[memory]"]
    most = now = 0
    for each in sorted(events, key=lambda event: event.start_ns()):
        now += each.nbytes()
        most = max(most, now)
    return float(kept + most)


def measure(name: str, frontend: str, options: argparse.Namespace) -> dict[str, Any]:
    """In this process: the first step, then some more, each timed."""
    row, device = MODELS[name], options.device
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("high")
    training = row.make(device, options.tiny)
    step = stepping(training, wrapper(frontend, options.backend))
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def timed() -> tuple[float, torch.Tensor]:
        started = time.perf_counter()
        loss = step()
        wait()
        return time.perf_counter() - started, loss

    first, _ = timed()
    for _ in range(3):
        timed()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    found = [timed() for _ in range(row.steps)]
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # before a profiler takes its own
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else peak_on_cpu(training, step)
    milliseconds = statistics.median(seconds for seconds, _ in found) * 1000
    memory = {"peak_mib": peak / MIB, "rss_mib": most / 1024}
    return {"ms": milliseconds, "first_s": first, **memory, "loss": found[-1][1].item()}


# -- comparing --------------------------------------------------------------------------------------------------------
def in_a_process(model: str, frontend: str, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", model, frontend, "--threads", str(options.threads)]
    command += ["--device", options.device, "--backend", options.backend, *(["--tiny"] if options.tiny else [])]
    with tempfile.TemporaryDirectory() as caches:
        places = {"TORCHINDUCTOR_CACHE_DIR": caches, "TRITON_CACHE_DIR": os.path.join(caches, "triton")}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **places})
    if done.returncode:
        sys.exit(f"{model} with {frontend} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(model: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for each front end: the best time of its rounds, with the first call and memory of the first."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in options.frontends}
    for _ in range(options.rounds or MODELS[model].rounds):
        for name in options.frontends:
            found[name].append(in_a_process(model, name, options))
    best = {name: min(each["ms"] for each in runs) for name, runs in found.items()}
    base = best.get("eager", next(iter(best.values())))
    return [
        {**runs[0], "model": model, "frontend": name, "ms": best[name], "ratio": base / best[name]}
        for name, runs in found.items()
    ]


def written(value: Any) -> Any:
    return f"{value:.3f}" if isinstance(value, float) else value


def main() -> None:
    os.environ.setdefault("TORCHDYNAMO_CACHE", "0")  # what is measured is captured anew
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["resnet18", "encoder"])
    parser.add_argument("--frontends", nargs="+", choices=FRONTENDS, default=list(FRONTENDS))
    parser.add_argument("--device", choices=("cpu", "cuda"), help="cuda for GPT-2 where there is one, else cpu")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--rounds", type=int, help="processes for each measurement")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that it works")
    parser.add_argument("--csv", help="write the table here too")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "FRONTEND"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one, options)))
        return
    if options.device is None:
        on_gpu = torch.cuda.is_available() and all(name.startswith("gpt2") for name in options.models)
        options.device = "cuda" if on_gpu else "cpu"
    rows = []
    print("".join(f"{name:>20}" for name in COLUMNS), flush=True)
    for model in options.models:
        for row in compare(model, options):
            rows.append({name: written(row[name]) for name in COLUMNS})
            print("".join(f"{rows[-1][name]:>20}" for name in COLUMNS), flush=True)
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()

"""CUDA graphs in ordinary programs, beside torch.compile: launches counted, host time, device time, memory, results.

    python benchmarks/cuda_graphs.py --seconds 290     # on a GPU; rows come as they are measured, the weightiest first
    python benchmarks/cuda_graphs.py --tiny            # tries the script on a CPU, over a stand-in for CUDA graphs

Each figure is of a process of its own. *host* is the processor's time of the thread that calls, until a call's work is
queued, *launch* the part of it in which CUDA launches recordings, *process* that of all threads, *call* the wall time
with the work done; medians of rounds. *from* is the first
call from which on each launches recordings and makes none; *launches* are those per call from then on. *MiB* is what
the allocator holds in steady state, pools of recordings included; *peak x* the same as a multiple of mode "default".
*kept* tells whether results that are held over all calls are equal to those of the same calls again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from decode import Decoder
from torch import nn
from torch.nn import functional as F
from training_models import GPT2

FRONT_ENDS = ("torchdynamo", "torch.compile")
COLUMNS = (
    "row",
    "front end",
    "from",
    "launches",
    "host us",
    "launch us",
    "process us",
    "call us",
    "MiB",
    "peak x",
    "kept",
    "first s",
)
WATCHED, ROUNDS = 8, 7
Step = Callable[[torch.Tensor], torch.Tensor]
Made = tuple[Step, Callable[[int], torch.Tensor], int]  # a call, its inputs by number, calls in a round


class Small(nn.Module):
    """Thirty small steps of matmul and relu."""

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(width, width) / width**0.5 for _ in range(steps))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = torch.relu(x @ weight) + 0.1 * x
        return x


# -- the programs -----------------------------------------------------------------------------------------------------
def loop(compile_: Callable[..., Any], device: str, tiny: bool) -> Made:
    model = Small(32 if tiny else 256, 30).to(device).requires_grad_(False)
    run = compile_(model)
    return run, lambda seed: batch(seed, device, (16, 32 if tiny else 256)), 200


def loop_training(compile_: Callable[..., Any], device: str, tiny: bool) -> Made:
    model = Small(32 if tiny else 256, 30).to(device)
    run, optimizer = compile_(model), torch.optim.SGD(model.parameters(), lr=0.001)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = run(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, lambda seed: batch(seed, device, (16, 32 if tiny else 256)), 100


def decode(compile_: Callable[..., Any], device: str, tiny: bool) -> Made:
    """One token through 36 layers as wide as Qwen3-4B's; the logits are kept."""
    sizes = (64, 2, 256) if tiny else (2560, 36, 151936)
    with torch.device(device):
        model = Decoder(*sizes).to(torch.float32 if tiny else torch.bfloat16).eval().requires_grad_(False)
    run = compile_(model)
    return run, lambda seed: torch.full((1, 1), seed + 1, device=device), 40


def nanogpt(compile_: Callable[..., Any], device: str, tiny: bool) -> Made:
    """GPT-2 as nanoGPT writes it: attention spelled out, 50257 tokens, bfloat16."""
    size, length = (2, 32) if tiny else (12, 1024)
    small = (
        {"vocabulary": 131, "length": length, "width": 64, "heads": 4, "layers": 2} if tiny else {"vocabulary": 50257}
    )
    model = GPT2(True, **small).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.1, fused=device == "cuda")

    def loss_of(ids: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=not tiny):
            logits = model(ids[:, :-1])
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))

    forward = compile_(loss_of)

    def step(ids: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = forward(ids)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def ids(seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(0, 131 if tiny else 50257, (size, length + 1), generator=generator).to(device)

    return step, ids, 10


def batch(seed: int, device: str, sizes: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).to(device)


class Row(NamedTuple):
    make: Callable[..., Made]
    mode: str
    base: bool  # mode "default" is measured as well, for the memory


ROWS = {
    "loop": Row(loop, "reduce-overhead", True),
    "decode": Row(decode, "reduce-overhead", False),
    "nanogpt": Row(nanogpt, "default", False),
    "loop, training": Row(loop_training, "reduce-overhead", True),
    "decode, tuned": Row(decode, "max-autotune", False),
    "nanogpt, recorded": Row(nanogpt, "reduce-overhead", False),
}


# -- measuring, in a process of its own -------------------------------------------------------------------------------
class Counted:
    """Counts captures and launches, and the time of the latter."""

    def __init__(self, tiny: bool) -> None:
        self.launches = self.captures = 0
        self.seconds = 0.0
        graph: Any = torch.cuda.CUDAGraph
        if tiny:
            sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "backends"))
            from fake_cuda_graphs import FakeDevice, FakeGraph

            from torchdynamo.backends.cuda_graphs.device import DEVICES

            DEVICES["cpu"] = FakeDevice()
            graph = FakeGraph
        replay, begin = graph.replay, graph.__init__ if tiny else graph.capture_begin

        def launch(each: Any) -> None:
            started = time.perf_counter()
            replay(each)
            self.seconds += time.perf_counter() - started
            self.launches += 1

        def capture(each: Any, *args: Any, **kwargs: Any) -> None:
            self.captures += 1
            begin(each, *args, **kwargs)

        graph.replay = launch
        setattr(graph, "__init__" if tiny else "capture_begin", capture)


def front_end(name: str, mode: str) -> Callable[..., Any]:
    if name == "torch.compile":
        return lambda fn: torch.compile(fn, mode=mode)
    import torchdynamo

    return lambda fn: torchdynamo.compile(fn, mode=mode)


def forget(name: str) -> None:
    if name == "torch.compile":
        torch.compiler.reset()
        return
    import torchdynamo

    torchdynamo.reset()


def measure(row: Row, name: str, device: str, tiny: bool) -> dict[str, Any]:
    counted = Counted(tiny)
    settle: Callable[[], Any] = torch.cuda.synchronize if device == "cuda" else int
    base = None
    if row.base:
        base = figures(row, front_end(name, "default"), device, tiny, counted, settle)["MiB"]
        forget(name)
    found = figures(row, front_end(name, row.mode), device, tiny, counted, settle)
    if base:
        found["peak x"] = found["MiB"] / base
    return found


def figures(
    row: Row, compile_: Callable[..., Any], device: str, tiny: bool, counted: Counted, settle: Callable[[], Any]
) -> dict[str, Any]:
    """The figures of one program in one mode."""
    torch.manual_seed(0)
    step, inputs, count = row.make(compile_, device, tiny)
    started = time.perf_counter()
    first_x = inputs(0)
    step(first_x)
    settle()
    found: dict[str, Any] = {"first s": time.perf_counter() - started}
    steady, y = None, None
    for at in range(2, WATCHED + 2):
        launches, captures = counted.launches, counted.captures
        y = step(inputs(at))
        replays = counted.launches > launches and counted.captures == captures
        steady = (steady or at) if replays else None
    found["from"] = steady
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    x = inputs(1)
    hosts, processes, calls, launch = [], [], [], []
    count = 3 if tiny else count
    launches, total = counted.launches, 0
    for _ in range(2 if tiny else ROUNDS):
        settle()
        counted.seconds = 0.0
        begun, process = time.thread_time(), time.process_time()
        for _ in range(min(count, 20)):  # before the queue is full
            y = step(x)
        hosts.append((time.thread_time() - begun) / min(count, 20))
        processes.append((time.process_time() - process) / min(count, 20))
        launch.append(counted.seconds / min(count, 20))
        settle()
        wall = time.perf_counter()
        for _ in range(count):
            y = step(x)
        settle()
        calls.append((time.perf_counter() - wall) / count)
        total += min(count, 20) + count
    found["launches"] = (counted.launches - launches) / total
    found["host us"], found["call us"] = statistics.median(hosts) * 1e6, statistics.median(calls) * 1e6
    found["launch us"] = statistics.median(launch) * 1e6
    found["process us"] = statistics.median(processes) * 1e6
    found["MiB"] = torch.cuda.max_memory_reserved() / 2**20 if device == "cuda" else 0.0
    del y
    found["kept"] = kept(row, step, inputs)
    return found


def kept(row: Row, step: Step, inputs: Callable[[int], torch.Tensor]) -> str:
    """What became of results of some calls, by the end of them; training steps change what the next gives."""
    try:
        held = [step(inputs(at)) for at in range(4)]
        got = [each.float().clone() for each in held]
        again = [step(inputs(at)).float() for at in range(4)]
    except RuntimeError as raised:
        text = str(raised)
        return "raises: overwritten" if "overwritten" in text else f"raises: {text.splitlines()[0][:60]}"
    if row.make in (loop, decode):
        return "equal" if all(map(torch.equal, got, again)) else "differ"
    return "finite" if all(bool(each.isfinite().all()) for each in [*got, *again]) else "not finite"


# -- comparing --------------------------------------------------------------------------------------------------------
def in_a_process(row: str, name: str, options: argparse.Namespace, seconds: float) -> dict[str, Any] | str:
    command = [sys.executable, __file__, "--one", row, name, *(["--tiny"] if options.tiny else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=max(seconds, 1))
    except subprocess.TimeoutExpired:
        return "out of time"
    if done.returncode:
        return f"failed: {done.stderr[-1500:]}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def written(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "-" if value is None else str(value)


def main() -> None:
    os.environ.setdefault("TORCHDYNAMO_CACHE", "0")  # what is measured is captured anew
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--front-ends", nargs="+", choices=FRONT_ENDS, default=list(FRONT_ENDS))
    parser.add_argument("--seconds", type=float, default=600.0, help="begin nothing after that; stop what runs")
    parser.add_argument("--tiny", action="store_true", help="small, on the CPU, over a stand-in for CUDA graphs")
    parser.add_argument("--one", nargs=2, metavar=("ROW", "FRONT END"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        device = "cpu" if options.tiny or not torch.cuda.is_available() else "cuda"
        torch.set_float32_matmul_precision("high")
        print(json.dumps(measure(ROWS[options.one[0]], options.one[1], device, options.tiny)))
        return
    end = time.monotonic() + options.seconds
    print("".join(f"{name:>15}" for name in COLUMNS), flush=True)
    for row in options.rows:
        for name in options.front_ends:
            left = end - time.monotonic()
            found = in_a_process(row, name, options, left) if left > 5 else "out of time"
            cells = [row, name]
            if isinstance(found, str):
                print("".join(f"{each:>15}" for each in cells), found, flush=True)
                continue
            print(
                "".join(f"{each:>15}" for each in [*cells, *(written(found.get(key)) for key in COLUMNS[2:])]),
                flush=True,
            )


if __name__ == "__main__":
    main()

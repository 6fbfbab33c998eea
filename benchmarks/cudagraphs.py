"""CUDA graphs in ordinary loops: from which call on they replay, what a call costs, and what becomes of results.

    python benchmarks/cudagraphs.py                            # on a GPU, in some three minutes
    python benchmarks/cudagraphs.py --device cpu --layers 1    # tries the script: nothing is recorded there

Three loops of 30 small layers, under each front end in a process of its own: inference whose result is alive during
the next call (`y = f(x)`), training steps whose loss is, and gradients that accumulate over four batches. *Replays
from* is the first call, or step, from which on each launches recordings and makes none; *us* the best of five rounds;
*results* how ten calls' results, read after all of them, compare with eager's. torch.compile raises where one was
overwritten.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

FRONT_ENDS = ("torchdynamo", "torch.compile")
MODES = ("default", "reduce-overhead")
ROUNDS, WATCHED = 5, 10
Step = Callable[[torch.Tensor], list[torch.Tensor]]


class Net(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).relu() + x * 0.5
        return x


class Recordings:
    """Counts what is recorded and launched."""

    def __init__(self) -> None:
        self.launched = self.made = 0
        replay, begin = torch.cuda.CUDAGraph.replay, torch.cuda.CUDAGraph.capture_begin

        def launch(graph: Any) -> None:
            self.launched += 1
            replay(graph)

        def record(graph: Any, *args: Any, **kwargs: Any) -> None:
            self.made += 1
            begin(graph, *args, **kwargs)

        torch.cuda.CUDAGraph.replay, torch.cuda.CUDAGraph.capture_begin = launch, record  # type: ignore[method-assign]

    def steady_from(self, step: Step, inputs: list[torch.Tensor]) -> int | None:
        """The first call of those to come after which each launches recordings and makes none."""
        first = None
        held = None  # as a loop's variable holds it
        for at, x in enumerate(inputs, 1):
            launched, made = self.launched, self.made
            held = step(x)
            steady = self.launched > launched and self.made == made
            first = (first or at) if steady else None
        del held
        return first


def inference(compile_: Callable[..., Any], options: argparse.Namespace) -> Step:
    net = model(options).requires_grad_(False)
    run = compile_(net)
    return lambda x: [run(x)]


def training(compile_: Callable[..., Any], options: argparse.Namespace) -> Step:
    net = model(options)
    run, optimizer = compile_(net), torch.optim.SGD(net.parameters(), lr=0.01)

    def step(x: torch.Tensor) -> list[torch.Tensor]:
        loss = run(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return [loss, *(each.grad for each in net.parameters())]

    return step


def accumulation(compile_: Callable[..., Any], options: argparse.Namespace) -> Step:
    net = model(options)
    run, steps = compile_(net), [0]

    def step(x: torch.Tensor) -> list[torch.Tensor]:
        loss = run(x).square().mean()
        loss.backward()
        gradients = [each.grad for each in net.parameters()]
        steps[0] += 1
        if steps[0] % 4 == 0:
            net.zero_grad()
        return [loss, *gradients]

    return step


LOOPS = {"inference": inference, "training": training, "accumulation": accumulation}


def model(options: argparse.Namespace) -> Net:
    torch.manual_seed(0)
    return Net(256, options.layers).to(options.device)


def batches(count: int, device: str) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(16, 256, generator=generator).to(device) for _ in range(count)]


def best(step: Step, x: torch.Tensor, count: int, settle: Callable[[], Any]) -> float:
    """Microseconds of one call in a loop whose variable keeps the result."""
    found = float("inf")
    for _ in range(ROUNDS):
        settle()
        start = time.perf_counter()
        held = None
        for _ in range(count):
            held = step(x)
        settle()
        found = min(found, (time.perf_counter() - start) / count)
        del held
    return found * 1e6


def verdict(step: Step, eager: Step, inputs: list[torch.Tensor]) -> str:
    """What became of the results of some calls, by the end of them. (Gradients are those of the last: they add up.)"""
    try:
        kept = [step(x) for x in inputs]
        got = [each[0].detach().clone() for each in kept] + [each.clone() for each in kept[-1][1:]]
    except RuntimeError as raised:
        return "raises: " + ("overwritten" if "overwritten" in str(raised) else str(raised).splitlines()[0][:60])
    wanted = [eager(x) for x in inputs]
    want = [each[0].detach() for each in wanted] + wanted[-1][1:]
    close = all(torch.allclose(mine, theirs, rtol=1e-3, atol=1e-4) for mine, theirs in zip(got, want, strict=True))
    return "equal" if close else "differ"


def front_end(name: str) -> Callable[..., Any]:
    if name == "torch.compile":
        return torch.compile
    import torchdynamo

    return torchdynamo.compile


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of one front end, by loop and mode."""
    compile_ = front_end(name)
    recordings = Recordings()
    settle = torch.cuda.synchronize if options.device == "cuda" else int
    inputs = batches(WATCHED, options.device)
    found: dict[str, Any] = {}
    for loop, make in LOOPS.items():
        found[f"{loop}, eager"] = {"us": best(make(lambda fn: fn, options), inputs[0], options.count, settle)}
        for mode in MODES:
            forget(name)
            step = make(lambda fn, mode=mode: compile_(fn, mode=mode), options)
            told = {"replays from": recordings.steady_from(step, inputs)}
            told["us"] = best(step, inputs[0], options.count, settle)
            forget(name)
            step = make(lambda fn, mode=mode: compile_(fn, mode=mode), options)
            told["results"] = verdict(step, make(lambda fn: fn, options), inputs)
            found[f"{loop}, {mode}"] = told
    return found


def forget(name: str) -> None:
    """Begin anew: what was compiled before is compiled again (from the caches on disk, the second time)."""
    if name == "torch.compile":
        torch.compiler.reset()
        return
    import torchdynamo

    torchdynamo.reset()


def main() -> None:
    parser = argparse.ArgumentParser(description="CUDA graphs in ordinary loops.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--count", type=int, default=200, help="calls in a round")
    parser.add_argument("--front-end", choices=FRONT_ENDS, help="this one alone, as JSON")
    options = parser.parse_args()
    if options.front_end:
        print(json.dumps(measured(options.front_end, options)))
        return
    print(f"{'':40}{'replays from':>14}{'us':>10}   results", flush=True)
    for name in FRONT_ENDS:
        command = [sys.executable, __file__, *sys.argv[1:], "--front-end", name]
        told = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if told.returncode:
            print(f"{name}: failed", flush=True)
            continue
        for what, figures in json.loads(told.stdout.splitlines()[-1]).items():
            first, result = figures.get("replays from") or "-", figures.get("results", "")
            print(f"{name + ': ' + what:40}{first:>14}{figures['us']:10.1f}   {result}", flush=True)


if __name__ == "__main__":
    main()

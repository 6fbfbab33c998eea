"""Measure one model at one batch size, in a process of its own: `python -m torchdynamo.bench.measure REQUEST`."""

from __future__ import annotations

import copy
import importlib
import json
import runpy
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

import torchdynamo
from torchdynamo.backends import ensemble
from torchdynamo.backends.registry import discover
from torchdynamo.bench import models
from torchdynamo.bench.backends import BackendSpec
from torchdynamo.bench.models import MODELS

TOLERANCE = 1e-3
"""Relative to a result's largest value: compilers round otherwise, and errors grow with depth."""
FEWEST = 5


class BenchRequest(NamedTuple):
    """Request to a process that measures."""

    model: str
    batch: int
    metric: str
    backends: list[str]
    threads: int
    seconds: float
    rounds: int
    settle: float
    imports: list[str]
    device: str
    out: str


class Measured(NamedTuple):
    """Measurements of one backend. Times are seconds."""

    backend: str
    value: float
    lower: float = 0.0
    upper: float = 0.0
    first: float = 0.0
    remark: str = ""


def load(paths: list[str]) -> None:
    """Run the user's files or modules, then fill the table of models."""
    for path in paths:
        if path.endswith(".py"):
            runpy.run_path(path)
        else:
            importlib.import_module(path)
    discover(models)


def main(text: str) -> None:
    """Measure what the request, a JSON object, asks for; write rows to its file, one JSON object a line."""
    request = BenchRequest(**json.loads(text))
    load(request.imports)
    if request.threads:
        torch.set_num_threads(request.threads)
    torch.manual_seed(0)
    row = MODELS[request.model]
    specs = [BackendSpec.of(each) for each in request.backends]
    model, inputs = row.make().to(request.device), on_device(row.inputs(request.batch), request.device)
    rows = METRICS[request.metric](request, model, inputs, specs)
    with open(request.out, "w") as file:
        file.writelines(json.dumps(each._asdict()) + "\n" for each in rows)


def on_device(inputs: Any, device: str) -> Any:
    """Return nested inputs with their tensors on a device."""
    return pytree.tree_map(lambda each: each.to(device) if isinstance(each, torch.Tensor) else each, inputs)


def speedup(request: BenchRequest, model: Any, inputs: Any, specs: list[BackendSpec]) -> list[Measured]:
    """Time calls in eval mode without gradients."""
    model.eval()

    def call(spec: BackendSpec) -> Callable[[], Any]:
        fn = spec.compile(model)
        return lambda: fn(*inputs)

    with torch.no_grad():
        return rounds(request, {spec: call(spec) for spec in specs})


def training(request: BenchRequest, model: Any, inputs: Any, specs: list[BackendSpec]) -> list[Measured]:
    """Time training steps: forward, backward and SGD, each backend with a copy of the model."""

    def step(spec: BackendSpec) -> Callable[[], Any]:
        own = copy.deepcopy(model).train()
        optimizer = torch.optim.SGD(own.parameters(), 1e-4)
        fn = spec.compile(own)

        def run() -> Any:
            optimizer.zero_grad()
            torch.manual_seed(0)
            result = fn(*inputs)
            loss = sum(each.float().square().mean() for each in tensors(result))
            loss.backward()  # type: ignore[union-attr]
            optimizer.step()
            return loss

        return run

    return rounds(request, {spec: step(spec) for spec in specs})


def rounds(request: BenchRequest, calls: dict[BackendSpec, Callable[[], Any]]) -> list[Measured]:
    """Call each once, hold its result against the first one's, let it settle, then time all in turn."""
    remarks, firsts, wanted = {}, {}, None
    for spec, call in calls.items():
        started = time.perf_counter()
        found = call()
        firsts[spec] = time.perf_counter() - started
        wanted = found if wanted is None else wanted
        remarks[spec] = compared(found, wanted)
        if spec.chooses:
            remarks[spec] += settled(call, request.settle)
    seconds: dict[BackendSpec, list[float]] = {spec: [] for spec in calls}
    end = time.monotonic() + request.seconds
    for call in calls.values():
        call()
    while len(next(iter(seconds.values()))) < request.rounds or (request.rounds == 0 and not done(seconds, end)):
        for spec, call in calls.items():
            started = time.perf_counter()
            call()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds[spec].append(time.perf_counter() - started)
    return [measured(spec, seconds[spec], firsts[spec], remarks[spec]) for spec in calls]


def done(seconds: dict[BackendSpec, list[float]], end: float) -> bool:
    """Return whether the time is over and each was timed often enough."""
    return time.monotonic() > end and all(len(each) >= FEWEST for each in seconds.values())


def measured(spec: BackendSpec, seconds: list[float], first: float, remark: str) -> Measured:
    """Return median and quartiles."""
    median = statistics.median(seconds)
    lower, _, upper = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else (median,) * 3
    return Measured(spec.text, median, lower, upper, first, remark)


def settled(call: Callable[[], Any], seconds: float) -> str:
    """Call until the ensemble has chosen for every graph; return the names of the members that serve them."""
    end = time.monotonic() + seconds
    while not ensemble.settled() and time.monotonic() < end:
        call()
    names = ",".join(ensemble.chosen()) + ("" if ensemble.settled() else ",...")
    ensemble.choices.clear()
    return names


def compared(found: Any, wanted: Any) -> str:
    """Return "" if results agree, else "differs by ...; "."""
    worst = 0.0
    for have, want in zip(tensors(found), tensors(wanted)):
        if have.shape != want.shape:
            return f"differs in shape {tuple(have.shape)}; "
        if want.is_floating_point() and want.numel():
            largest = max(float(want.detach().abs().max()), 1e-6)
            worst = max(worst, float((have.detach() - want.detach()).abs().max()) / largest)
    return f"differs by {worst:.0e}; " if worst > TOLERANCE else ""


def tensors(result: Any) -> list[torch.Tensor]:
    """Return the tensors of nested results; attributes of output classes, too."""
    leaves = pytree.tree_leaves(dict(result) if hasattr(result, "items") else result)
    return [each for each in leaves if isinstance(each, torch.Tensor)]


def coverage(request: BenchRequest, model: Any, inputs: Any, specs: list[BackendSpec]) -> list[Measured]:
    """Count operators in graphs: the value is the number of graphs, the remark operators and breaks."""
    model.eval()
    with torch.no_grad():
        report = torchdynamo.explain(model)(*inputs)
    remark = (
        f"{report.op_count} operators in graphs, {report.graph_break_count} breaks, {len(report.skips)} left to Python"
    )
    return [Measured("eager", float(report.graph_count), remark=remark)]


def cold_start(request: BenchRequest, model: Any, inputs: Any, specs: list[BackendSpec]) -> list[Measured]:
    """Time the first call in this process. The request names one backend."""
    model.eval()
    with torch.no_grad():
        started = time.perf_counter()
        specs[-1].compile(model)(*inputs)
    taken = time.perf_counter() - started
    return [Measured(specs[-1].text, taken, taken, taken, taken)]


METRICS: dict[str, Callable[[BenchRequest, Any, Any, list[BackendSpec]], list[Measured]]] = {
    "speedup": speedup,
    "overhead": speedup,
    "training": training,
    "coverage": coverage,
    "cold-start": cold_start,
}

if __name__ == "__main__":
    main(sys.argv[1])

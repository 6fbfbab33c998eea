"""What training over several ranks costs: eager, torch.compile and torchdynamo, side by side in one run.

    python benchmarks/distributed.py --ranks 4                     # GPUs of one host, by NCCL
    python benchmarks/distributed.py --ranks 2 --tiny --backend aot_eager     # processes on a CPU, by gloo
    python benchmarks/distributed.py --ranks 4 --rows "1b ddp-5" --csv distributed.csv

GPT-2 (124M parameters, tied embeddings) and a model of 1B without tied embeddings, in bfloat16, each rank with a batch
of 8 x 1024: on one GPU alone (`alone`: each rank steps, nobody communicates), under DDP with buckets of 5 and 25 MB,
under FSDP2 by blocks, and with tensor parallelism over pairs, FSDP2 over the rest. One process for each rank measures
row after row; rows are printed as they come, the most important ones first, until the seconds are used up. A row in
which a rank fails or waits too long is given up, and the others go on in new processes.

`ms` is the median step, `first_s` the first one, `ten_s` the first ten together (torchdynamo's first step under DDP is
eager: PyTorch makes buckets in its order). `hidden` is the share of NCCL's time in which other kernels run, `peak_mib`
the most memory that the allocator of any rank has given out, `compiles` the graphs of each rank, `apart` the largest
difference in loss from eager in the first ten steps, on any rank.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import os
import resource
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from training_models import GPT2

FRONTENDS = ("eager", "torch.compile", "torchdynamo")
COLUMNS = ("model", "way", "frontend", "ms", "ratio", "alone", "first_s", "ten_s", "hidden", "peak_mib", "compiles")
COLUMNS = (*COLUMNS, "apart", "failure")
MIB, STEPS, PROFILED = 2**20, 10, 2
ROWS = (
    *("1b alone", "1b ddp-5", "gpt2 alone", "gpt2 ddp-25", "1b fsdp2", "gpt2 ddp-5", "1b ddp-25", "gpt2 fsdp2"),
    *("1b tp", "gpt2 tp"),
)


class Sizes(NamedTuple):
    """How large a model and a batch are."""

    vocabulary: int
    width: int
    heads: int
    layers: int
    length: int = 1024
    batch: int = 8
    tied: bool = False


SIZES = {"gpt2": Sizes(50304, 768, 12, 12, tied=True), "1b": Sizes(50304, 2048, 16, 16)}
TINY = {"gpt2": Sizes(128, 64, 4, 2, 32, 2, tied=True), "1b": Sizes(128, 128, 4, 4, 32, 2)}


# -- models and how they are spread -----------------------------------------------------------------------------------
class WithLoss(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids, following):
        logits = self.model(ids)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), following.reshape(-1))


def made(sizes: Sizes, device: torch.device) -> WithLoss:
    torch.manual_seed(0)
    with device:
        model = GPT2(False, sizes.vocabulary, sizes.length, sizes.width, sizes.heads, sizes.layers)
        if not sizes.tied:
            model.head.weight = nn.Parameter(torch.empty(sizes.vocabulary, sizes.width).normal_(std=0.02))
    return WithLoss(model.to(torch.bfloat16))


def by_blocks(whole: WithLoss, compiled: Callable[[Any], Any]) -> None:
    """Compile what blocks do; the hooks around them stay out of it."""
    for block in whole.model.blocks:
        block.forward = compiled(block.forward)


def spread(whole: WithLoss, way: str, compiled: Callable[[Any], Any], device: torch.device) -> nn.Module:
    """Make a model one of several ranks', and compile it."""
    if way == "alone":
        return compiled(whole)
    if way.startswith("ddp-"):
        where = [device.index] if device.type == "cuda" else None
        return compiled(DistributedDataParallel(whole, device_ids=where, bucket_cap_mb=int(way[4:])))
    from torch.distributed.fsdp import fully_shard

    by_blocks(whole, compiled)
    mesh = None
    if way == "tp":
        mesh = paired(whole, device)
        if mesh is None:
            return whole
    for block in whole.model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(whole, mesh=mesh)
    return whole


def paired(whole: WithLoss, device: torch.device) -> Any:
    """Split each block over two ranks; return the mesh of those that hold the same part, None for one rank."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh(device.type, (dist.get_world_size() // 2, 2), mesh_dim_names=("rest", "pair"))
    plan = {"attention.qkv": ColwiseParallel(), "attention.out": RowwiseParallel()}
    plan.update(up=ColwiseParallel(), down=RowwiseParallel())
    for block in whole.model.blocks:
        block.attention.heads //= 2
        parallelize_module(block, mesh["pair"], plan)
    return mesh["rest"] if dist.get_world_size() > 2 else None


def by_mesh(model: nn.Module) -> list[dict[str, Any]]:
    """Return groups of parameters that a fused update takes at once: those on one mesh, or on none."""
    groups: dict[Any, list[nn.Parameter]] = {}
    for each in model.parameters():
        groups.setdefault(getattr(each, "device_mesh", None), []).append(each)
    return [{"params": each} for each in groups.values()]


def frontend_of(name: str, backend: str) -> Callable[[Any], Any]:
    if name == "eager":
        return lambda fn: fn
    if name == "torch.compile":
        return lambda fn: torch.compile(fn, backend=backend)
    import torchdynamo

    return lambda fn: torchdynamo.compile(fn, backend=backend)


def compiles_of(name: str) -> int:
    """Count the graphs that this process has compiled since it was last reset."""
    if name == "torchdynamo":
        import torchdynamo

        return int(torchdynamo.report()["totals"]["graphs"])
    if name == "torch.compile":
        from torch._dynamo.utils import counters

        return int(counters["stats"]["unique_graphs"])
    return 0


def forget(name: str) -> None:
    """Drop all that was compiled, and the memory with it."""
    if name == "torchdynamo":
        import torchdynamo

        torchdynamo.reset()
    if name == "torch.compile":
        from torch._dynamo.utils import counters

        torch._dynamo.reset()
        counters.clear()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


# -- measuring, in each rank ------------------------------------------------------------------------------------------
def hidden_share(step: Callable[[], object], folder: str) -> float | None:
    """Return in what part of the time of NCCL's kernels other kernels run as well."""
    trace = os.path.join(folder, f"trace{dist.get_rank()}.json")
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    profile.export_chrome_trace(trace)
    with open(trace) as file:
        events = json.load(file)["traceEvents"]
    os.remove(trace)
    kernels = [each for each in events if each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    spans = [("nccl" in each["name"].lower(), each["ts"], each["ts"] + each["dur"]) for each in kernels]
    sent, rest = (merged([span[1:] for span in spans if span[0] is kind]) for kind in (True, False))
    total = sum(end - start for start, end in sent)
    return overlap(sent, rest) / total if total else None


def merged(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return intervals in order, with those that overlap made one."""
    result: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def overlap(some: list[tuple[float, float]], others: list[tuple[float, float]]) -> float:
    """Return how long both lists of disjoint intervals, in order, have one at once."""
    total, at = 0.0, 0
    for start, end in some:
        while at < len(others) and others[at][1] <= start:
            at += 1
        next_at = at
        while next_at < len(others) and others[next_at][0] < end:
            total += min(end, others[next_at][1]) - max(start, others[next_at][0])
            next_at += 1
    return total


def measure(row: str, frontend: str, options: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Train for some steps; return what this rank has seen."""
    model, way = row.split()
    sizes = (TINY if options.tiny else SIZES)[model]
    on_gpu = options.device == "cuda"
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    trained = spread(made(sizes, device), way, frontend_of(frontend, options.backend), device)
    optimizer = torch.optim.AdamW(by_mesh(trained), lr=3e-4, fused=True)
    ours = dist.get_rank() // 2 if way == "tp" else dist.get_rank()  # a pair has one batch
    generator = torch.Generator().manual_seed(ours)
    shape = (4, sizes.batch, sizes.length + 1)
    batches = torch.randint(0, sizes.vocabulary, shape, generator=generator).to(device)

    def step(number: int = 0) -> torch.Tensor:
        ids = batches[number % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        loss = trained(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses, times = [], []
    for number in range(STEPS + options.steps):
        if on_gpu and number == STEPS:
            torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        loss = step(number)
        wait()
        times.append(time.perf_counter() - started)
        if number < STEPS:
            losses.append(loss.item())
    peak = (
        torch.cuda.max_memory_allocated() / MIB if on_gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    )
    shared = on_gpu and way != "alone" and dist.get_world_size() > 1
    return {
        "ms": statistics.median(times[STEPS:]) * 1000,
        "first_s": times[0],
        "ten_s": sum(times[:STEPS]),
        "hidden": hidden_share(step, folder) if shared else None,
        "peak_mib": peak,
        "compiles": compiles_of(frontend),
        "losses": losses,
    }


def work(rank: int, jobs: list[tuple[str, str]], options: argparse.Namespace, folder: str) -> None:
    """Be one rank: measure one job after the other. Rank 0 says on its standard output what it begins and finds."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(options.ranks), LOCAL_RANK=str(rank))
    patience = timedelta(seconds=options.patience)
    kind = "nccl" if options.device == "cuda" else "gloo"
    here: dict[str, Any] = {}
    if options.device == "cuda":
        torch.cuda.set_device(rank)
        here["device_id"] = torch.device("cuda", rank)
    torch.set_num_threads(options.threads)
    where = f"file://{folder}/store"
    dist.init_process_group(kind, rank=rank, world_size=options.ranks, init_method=where, timeout=patience, **here)
    talk = dist.new_group(backend="gloo", timeout=patience)
    for row, frontend in jobs:
        more = [time.time() < options.until]
        dist.broadcast_object_list(more, 0, group=talk)
        if not more[0]:
            break
        if rank == 0:
            print(json.dumps({"begins": [row, frontend]}), flush=True)
        caches = os.path.join(folder, f"{row} {frontend}".replace(" ", "-"))
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=caches, TRITON_CACHE_DIR=os.path.join(caches, "triton"))
        try:
            found = measure(row, frontend, options, folder)
        except Exception as error:
            found = {"failure": f"rank {rank}: {type(error).__name__}: {error}".strip()[:600]}
        each: list[Any] = [None] * options.ranks
        dist.all_gather_object(each, found, group=talk)
        if rank == 0:
            print(json.dumps({"found": [row, frontend, each]}), flush=True)
        forget(frontend)
    dist.barrier(group=talk)
    dist.destroy_process_group()


# -- comparing --------------------------------------------------------------------------------------------------------
class Table:
    """Prints rows as they come, and writes them to a file."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        self.known: dict[tuple[str, str], dict[str, Any]] = {}
        print(self.line({name: name for name in COLUMNS}), flush=True)

    def line(self, row: dict[str, Any]) -> str:
        wide = {"frontend": 14, "failure": 0, "compiles": 16}
        return "".join(f"{row[name]!s:>{wide.get(name, 10)}}" for name in COLUMNS[:-1]) + f"  {row['failure']}"

    def add(self, job: tuple[str, str], each: list[dict[str, Any]]) -> None:
        """Add what the ranks have found in a job. An empty list: nothing."""
        row, frontend = job
        model, way = row.split()
        cells: dict[str, Any] = dict.fromkeys(COLUMNS, "") | {"model": model, "way": way, "frontend": frontend}
        failures = [found["failure"] for found in each if "failure" in found]
        if failures or not each:
            cells["failure"] = failures[0].replace("\n", " ") if failures else "a rank ended or waited too long"
        else:
            self.fill(cells, job, each)
        self.rows.append(cells)
        print(self.line(cells), flush=True)
        if self.path:
            with open(self.path, "w", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS)
                writer.writeheader()
                writer.writerows(self.rows)

    def fill(self, cells: dict[str, Any], job: tuple[str, str], each: list[dict[str, Any]]) -> None:
        row, frontend = job
        model = row.split()[0]
        ms = max(found["ms"] for found in each)
        self.known[job] = {"ms": ms, "losses": [found["losses"] for found in each]}
        eager, alone = self.known.get((row, "eager")), self.known.get((f"{model} alone", frontend))
        cells["ms"] = f"{ms:.2f}"
        for name in ("first_s", "ten_s"):
            cells[name] = f"{max(found[name] for found in each):.1f}"
        cells["peak_mib"] = f"{max(found['peak_mib'] for found in each):.0f}"
        counts = [found["compiles"] for found in each]
        cells["compiles"] = f"{counts[0]} each" if len(set(counts)) == 1 else " ".join(map(str, counts))
        if each[0]["hidden"] is not None:
            cells["hidden"] = (
                f"{statistics.median(found['hidden'] for found in each if found['hidden'] is not None):.0%}"
            )
        if alone:
            cells["alone"] = f"{ms / alone['ms']:.3f}"
        if eager:
            cells["ratio"] = f"{eager['ms'] / ms:.3f}"
            both = zip(eager["losses"], self.known[job]["losses"], strict=True)
            cells["apart"] = f"{max(abs(a - b) for one, other in both for a, b in zip(one, other, strict=True)):.2e}"


def run(jobs: list[tuple[str, str]], options: argparse.Namespace, table: Table) -> list[tuple[str, str]]:
    """Start all ranks on these jobs; return those that are left if one has failed, without that one."""
    with tempfile.TemporaryDirectory() as folder:
        threads = str(max(1, (os.cpu_count() or 1) // options.ranks))
        environment = {**os.environ, "NCCL_NVLS_ENABLE": "0", "TORCHINDUCTOR_COMPILE_THREADS": threads}
        command = [sys.executable, os.path.abspath(__file__), "--work"]
        given = {"jobs": jobs, "options": vars(options), "folder": folder}
        ranks = [
            subprocess.Popen(
                [*command, json.dumps({**given, "rank": rank})],
                env=environment,
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                text=True,
            )
            for rank in range(options.ranks)
        ]
        try:
            return follow(ranks, list(jobs), options, table)
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()


def follow(
    ranks: list[subprocess.Popen[str]], left: list[tuple[str, str]], options: argparse.Namespace, table: Table
) -> list[tuple[str, str]]:
    """Read what rank 0 says until it has ended; return the jobs that are left after one that failed."""
    output = ranks[0].stdout
    begun: tuple[str, str] | None = None
    assert output is not None
    while select.select([output], [], [], options.patience)[0]:
        said = output.readline()
        if not said:
            break
        if not said.startswith("{"):
            continue
        told = json.loads(said)
        if "begins" in told:
            begun = tuple(told["begins"])
        else:
            row, frontend, each = told["found"]
            table.add((row, frontend), each)
            left.remove((row, frontend))
            begun = None
    if begun is None:
        return []
    table.add(begun, [])
    left.remove(begun)
    return left


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        given = json.loads(sys.argv[2])
        work(
            given["rank"],
            [tuple(each) for each in given["jobs"]],
            argparse.Namespace(**given["options"]),
            given["folder"],
        )
        return
    os.environ.setdefault("TORCHDYNAMO_CACHE", "0")  # what is measured is captured anew
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=torch.cuda.device_count() or 2)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--frontends", nargs="+", choices=FRONTENDS, default=list(FRONTENDS))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--steps", type=int, default=20, help="steps that are timed, after ten others")
    parser.add_argument("--seconds", type=float, default=460, help="begin no row after so many")
    parser.add_argument("--patience", type=float, default=150, help="seconds after which a row is given up")
    parser.add_argument("--threads", type=int, default=1, help="threads of each rank's operators on a CPU")
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that it works")
    parser.add_argument("--csv", help="write the table here too")
    options = parser.parse_args()
    options.until = time.time() + options.seconds
    table = Table(options.csv)
    left = [(row, frontend) for row in options.rows for frontend in options.frontends]
    while left and time.time() < options.until:
        left = run(left, options, table)


if __name__ == "__main__":
    main()

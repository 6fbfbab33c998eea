"""What training over several ranks costs: eager, torch.compile and torchdynamo, side by side in one run.

    python benchmarks/distributed.py --ranks 4                     # GPUs of one host, by NCCL
    python benchmarks/distributed.py --ranks 2 --tiny --backend aot_eager     # processes on a CPU, by gloo
    python benchmarks/distributed.py --ranks 4 --rows "1b ddp-5" --csv distributed.csv

GPT-2 (124M parameters, tied embeddings) and a model of 1B without tied embeddings, in bfloat16, each rank with a batch
of 8 x 1024: on one GPU alone (`alone`: each rank steps, nobody communicates), under DDP with buckets of 5 and 25 MB
(`views`: gradients are views of buckets), under FSDP2 by blocks (`kept`: parameters stay gathered until the backward),
and with tensor parallelism over pairs, FSDP2 over the rest. Each front end has processes of its own, one for each rank.
All of them prepare a row (or two, `--together`) side by side; then they are measured in turns, by themselves. A rank
keeps to the same cores of the CPU in each front end, and Python's collector leaves alone what is there after ten steps.
With `--one-process` each rank is one process for all front ends, so that their steps also run in the same memory; first
steps and peaks are not each front end's own then. Rows are printed as they come, until the seconds are used up. A row
in which a rank fails or waits too long is given up, and the others go on in new processes.

`ms` is the median step, of groups of five that the host does not wait between, `first_s` the first one, `ten_s` the
first ten together (torchdynamo's first step under DDP is eager: PyTorch makes buckets in its order). They are long, as
others compile meanwhile, and shorter in later rows, as a front end keeps its kernels. `hidden` is the share of NCCL's
time in which other kernels run, `peak_mib` the most memory that the allocator of any rank has given out, `compiles` the
graphs of each rank, `apart` the largest difference in loss from eager in the first ten steps, on any rank.
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
MIB, STEPS, GROUP, PROFILED = 2**20, 10, 5, 2
ROWS = (
    *("1b alone", "gpt2 alone", "1b ddp-5", "gpt2 ddp-25", "1b fsdp2", "gpt2 fsdp2", "1b ddp-5-views", "gpt2 ddp-5"),
    *("1b tp", "gpt2 tp", "1b fsdp2-kept", "1b ddp-25"),
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
class Start(nn.Module):
    def __init__(self, model: GPT2) -> None:
        super().__init__()
        self.tokens, self.places = model.tokens, model.places

    def forward(self, ids):
        return self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))


class End(nn.Module):
    def __init__(self, model: GPT2) -> None:
        super().__init__()
        self.norm, self.head = model.norm, model.head

    def forward(self, x, following):
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), following.reshape(-1))


class WithLoss(nn.Module):
    """A model as a row of modules, which can be sharded and compiled one by one."""

    def __init__(self, model: GPT2) -> None:
        super().__init__()
        self.start, self.blocks, self.end = Start(model), model.blocks, End(model)

    def forward(self, ids, following):
        x = self.start(ids)
        for block in self.blocks:
            x = block(x)
        return self.end(x, following)


def made(sizes: Sizes, device: torch.device) -> WithLoss:
    torch.manual_seed(0)
    with device:
        model = GPT2(False, sizes.vocabulary, sizes.length, sizes.width, sizes.heads, sizes.layers)
        if not sizes.tied:
            model.head.weight = nn.Parameter(torch.empty(sizes.vocabulary, sizes.width).normal_(std=0.02))
    for block in model.blocks:
        block.attention.past = None  # which its attention does not need, and DDP would broadcast
    return WithLoss(model.to(torch.bfloat16))


def spread(whole: WithLoss, sizes: Sizes, way: str, compiled: Callable[[Any], Any], device: torch.device) -> nn.Module:
    """Make a model one of several ranks', and compile it."""
    if way == "alone":
        return compiled(whole)
    if way.startswith("ddp-"):
        where = [device.index] if device.type == "cuda" else None
        how = {"bucket_cap_mb": int(way.split("-")[1]), "gradient_as_bucket_view": way.endswith("views")}
        return compiled(DistributedDataParallel(whole, device_ids=where, **how))
    from torch.distributed.fsdp import fully_shard

    mesh = paired(whole, device) if way == "tp" else None
    units = (whole.start, *whole.blocks, whole.end)
    for unit in units:  # the hooks around them stay outside
        unit.forward = compiled(unit.forward)
    if way == "tp" and mesh is None:
        return whole
    kept = {"reshard_after_forward": False} if way.endswith("kept") else {}
    for unit in units[1:-1] if sizes.tied else units:  # what start and end share is gathered with the whole
        fully_shard(unit, mesh=mesh, **kept)
    fully_shard(whole, mesh=mesh, **kept)
    return whole


def paired(whole: WithLoss, device: torch.device) -> Any:
    """Split each block over two ranks; return the mesh of those that hold the same part, None for one rank."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh(device.type, (dist.get_world_size() // 2, 2), mesh_dim_names=("rest", "pair"))
    plan = {"attention.qkv": ColwiseParallel(), "attention.out": RowwiseParallel()}
    plan.update(up=ColwiseParallel(), down=RowwiseParallel())
    for block in whole.blocks:
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
    gc.unfreeze()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


# -- measuring, in each rank ------------------------------------------------------------------------------------------
def hidden_share(step: Callable[[], object], trace: str) -> float | None:
    """Return in what part of the time of NCCL's kernels other kernels run as well. trace: a file, for the profile."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    profile.export_chrome_trace(trace)
    with open(trace) as file:
        events = json.load(file)["traceEvents"]
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


class Training:
    """A row in one rank: a model that has trained for some steps, and can be measured."""

    def __init__(self, row: str, frontend: str, options: argparse.Namespace) -> None:
        model, self.way = row.split()
        self.row, self.frontend, self.options = row, frontend, options
        sizes = (TINY if options.tiny else SIZES)[model]
        self.on_gpu = options.device == "cuda"
        device = torch.device("cuda", torch.cuda.current_device()) if self.on_gpu else torch.device("cpu")
        trained = spread(made(sizes, device), sizes, self.way, frontend_of(frontend, options.backend), device)
        optimizer = torch.optim.AdamW(by_mesh(trained), lr=3e-4, fused=True)
        ours = dist.get_rank() // 2 if self.way == "tp" else dist.get_rank()  # a pair has one batch
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

        self.step = step
        self.times: list[float] = []

    def wait(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def prepare(self) -> dict[str, Any]:
        """Train for ten steps; return how long they took, and their losses."""
        losses, times = [], []
        for number in range(STEPS):
            started = time.perf_counter()
            losses.append(self.step(number).item())
            self.wait()
            times.append(time.perf_counter() - started)
        if self.on_gpu:
            torch.cuda.empty_cache()
        gc.collect()
        gc.freeze()  # a full collection in one rank makes all of them wait
        return {"first_s": times[0], "ten_s": sum(times), "losses": losses}

    def measure(self) -> dict[str, Any]:
        """Train for some more steps; return the median of all that were timed so far."""
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
        self.step()
        self.wait()
        dist.barrier()
        for _ in range(self.options.groups):
            started = time.perf_counter()
            for _ in range(GROUP):
                self.step()
            self.wait()
            self.times.append((time.perf_counter() - started) / GROUP)
        if self.on_gpu:
            peak = torch.cuda.max_memory_allocated() / MIB
        else:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        compiles = compiles_of(self.frontend)
        return {"ms": statistics.median(self.times) * 1000, "peak_mib": peak, "compiles": compiles}

    def profile(self, folder: str) -> dict[str, Any]:
        """Return what a profiler sees of some more steps. folder: for its trace."""
        name = f"{self.row} {self.frontend} {dist.get_rank()}.json".replace(" ", "_")
        return {"hidden": hidden_share(self.step, os.path.join(folder, name)) if self.on_gpu else None}


def keep_to_cores(rank: int, ranks: int) -> None:
    """Run this process on its rank's share of the cores: the same one for each front end."""
    if sys.platform == "linux":
        cores = sorted(os.sched_getaffinity(0))
        share = len(cores) // ranks
        if share:
            os.sched_setaffinity(0, cores[rank * share : (rank + 1) * share])


def work(rank: int, options: argparse.Namespace, folder: str) -> None:
    """Be one rank. Rank 0 is told on its standard input what to do with which front end, and says what all found."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what others print does not get between
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(options.ranks), LOCAL_RANK=str(rank))
    here: dict[str, Any] = {}
    if options.device == "cuda":
        torch.cuda.set_device(rank)
        here["device_id"] = torch.device("cuda", rank)
    torch.set_num_threads(options.threads)
    keep_to_cores(rank, options.ranks)
    kind = "nccl" if options.device == "cuda" else "gloo"
    where, patience = f"file://{folder}/store", timedelta(seconds=options.patience)
    dist.init_process_group(kind, rank=rank, world_size=options.ranks, init_method=where, timeout=patience, **here)
    talk = dist.new_group(backend="gloo", timeout=timedelta(hours=1))
    trainings: dict[str, Training] = {}
    while True:
        told: list[Any] = [json.loads(sys.stdin.readline() or '["end", "", ""]') if rank == 0 else None]
        dist.broadcast_object_list(told, 0, group=talk)
        what, row, frontend = told[0]
        found: dict[str, Any] = {}
        try:
            if what == "prepare":
                trainings[frontend] = Training(row, frontend, options)
                found = trainings[frontend].prepare()
            elif what == "measure":
                found = trainings[frontend].measure()
            elif what == "profile":
                found = trainings[frontend].profile(options.traces or folder)
            else:
                trainings.pop(frontend, None)
                forget(frontend)
        except Exception as error:
            found = {"failure": f"rank {rank}: {type(error).__name__}: {error}".strip()[:600]}
        each: list[Any] = [None] * options.ranks
        dist.all_gather_object(each, found, group=talk)
        if rank == 0:
            print(json.dumps({"found": each}), file=answers, flush=True)
        if what == "end":
            break
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
        wide = {"way": 13, "frontend": 14, "compiles": 16}
        return "".join(f"{row[name]!s:>{wide.get(name, 10)}}" for name in COLUMNS[:-1]) + f"  {row['failure']}"

    def add(self, job: tuple[str, str], each: list[dict[str, Any]]) -> None:
        """Add what the ranks have found in a row of a front end. An empty list: nothing."""
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
        model, way = row.split()
        ms = max(found["ms"] for found in each)
        self.known[job] = {"ms": ms, "losses": [found["losses"] for found in each]}
        eager, alone = self.known.get((row, "eager")), self.known.get((f"{model} alone", frontend))
        cells["ms"] = f"{ms:.2f}"
        for name in ("first_s", "ten_s"):
            cells[name] = f"{max(found[name] for found in each):.1f}"
        cells["peak_mib"] = f"{max(found['peak_mib'] for found in each):.0f}"
        counts = [found["compiles"] for found in each]
        cells["compiles"] = f"{counts[0]} each" if len(set(counts)) == 1 else " ".join(map(str, counts))
        shares = [found["hidden"] for found in each if found["hidden"] is not None]
        if shares and way != "alone":
            cells["hidden"] = f"{statistics.median(shares):.0%}"
        if alone:
            cells["alone"] = f"{ms / alone['ms']:.3f}"
        if eager:
            cells["ratio"] = f"{eager['ms'] / ms:.3f}"
            both = zip(eager["losses"], self.known[job]["losses"], strict=True)
            cells["apart"] = f"{max(abs(a - b) for one, other in both for a, b in zip(one, other, strict=True)):.2e}"


class World:
    """The processes of one front end, or of all, one for each rank."""

    def __init__(self, options: argparse.Namespace, kernels: str) -> None:
        """Start them. kernels: a folder in which they keep what they have compiled."""
        self.options = options
        self.folder = tempfile.TemporaryDirectory()
        worlds = options.together * (1 if options.one_process else len(options.frontends))
        threads = str(max(1, (os.cpu_count() or 1) // (options.ranks * worlds)))
        environment = {**os.environ, "NCCL_NVLS_ENABLE": "0", "TORCHINDUCTOR_COMPILE_THREADS": threads}
        environment["TORCHINDUCTOR_CACHE_DIR"] = kernels
        environment["TRITON_CACHE_DIR"] = os.path.join(kernels, "triton")
        given = {"options": vars(options), "folder": self.folder.name}
        self.ranks = [
            subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), "--work", json.dumps({**given, "rank": rank})],
                env=environment,
                stdin=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                text=True,
            )
            for rank in range(options.ranks)
        ]
        self.alive = True

    def tell(self, what: str, row: str, frontend: str) -> None:
        try:
            self.ranks[0].stdin.write(json.dumps([what, row, frontend]) + "\n")  # type: ignore[union-attr]
            self.ranks[0].stdin.flush()  # type: ignore[union-attr]
        except OSError:
            self.alive = False

    def found(self) -> list[dict[str, Any]]:
        """Return what each rank has found; end all and return an empty list if they do not say so in time."""
        output: Any = self.ranks[0].stdout
        if self.alive and select.select([output], [], [], self.options.patience)[0]:
            said = output.readline()
            each: list[dict[str, Any]] = json.loads(said)["found"] if said else []
            if said and not any("failure" in found for found in each):
                return each
        else:
            each = []
        self.end()
        return each

    def end(self) -> None:
        self.alive = False
        for rank in self.ranks[::-1]:  # rank 0 serves the others
            rank.kill()
        for rank in self.ranks:
            rank.wait()
        self.folder.cleanup()


class Job(NamedTuple):
    """A row of a front end, and the processes that do it."""

    row: str
    frontend: str
    world: World


class Worlds:
    """The processes of all front ends, for as many rows as are prepared together."""

    def __init__(self, options: argparse.Namespace, kernels: str) -> None:
        self.options, self.kernels = options, kernels
        self.known: dict[tuple[int, str], World] = {}

    def of(self, place: int, frontend: str) -> World:
        name = "all" if self.options.one_process else frontend
        found = self.known.get((place, name))
        if found is None or not found.alive:
            found = self.known[place, name] = World(self.options, os.path.join(self.kernels, name))
        return found

    def run(self, rows: list[str], table: Table) -> None:
        """Prepare some rows, all front ends side by side, and measure them in turns."""
        jobs = [
            Job(row, name, self.of(place, name)) for place, row in enumerate(rows) for name in self.options.frontends
        ]
        seen: dict[tuple[str, str], list[dict[str, Any]]] = {}

        def ask(what: str, some: list[Job]) -> None:
            for job in some:
                job.world.tell(what, job.row, job.frontend)
            for job in some:
                key, found = (job.row, job.frontend), job.world.found()
                seen[key] = [{**a, **b} for a, b in zip(seen.get(key, found), found, strict=False)]

        def ask_in_turns(what: str, some: list[Job]) -> None:
            for job in some:
                if job.world.alive:
                    ask(what, [job])
                else:
                    seen.setdefault((job.row, job.frontend), [])

        (ask_in_turns if self.options.one_process else ask)("prepare", jobs)
        for row in rows:
            mine = [job for job in jobs if job.row == row]
            for number in range(self.options.rounds):
                first = number % len(mine)  # none of them always comes after the same one
                ask_in_turns("measure", mine[first:] + mine[:first])
            ask_in_turns("profile", mine)
            for job in mine:
                table.add((row, job.frontend), seen[row, job.frontend])
        ask_in_turns("forget", jobs)

    def end(self) -> None:
        for world in self.known.values():
            if world.alive:
                world.end()


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        given = json.loads(sys.argv[2])
        work(given["rank"], argparse.Namespace(**given["options"]), given["folder"])
        return
    os.environ.setdefault("TORCHDYNAMO_CACHE", "0")  # what is measured is captured anew
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=torch.cuda.device_count() or 2)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--frontends", nargs="+", choices=FRONTENDS, default=list(FRONTENDS))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--one-process", action="store_true", help="all front ends of a rank are in one process")
    parser.add_argument("--together", type=int, default=1, help="rows that are prepared side by side")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all front ends, for each row")
    parser.add_argument("--groups", type=int, default=2, help="groups of five steps that are timed, in each round")
    parser.add_argument("--seconds", type=float, default=460, help="begin no row after so many")
    parser.add_argument("--patience", type=float, default=150, help="seconds after which a row is given up")
    parser.add_argument("--threads", type=int, default=1, help="threads of each rank's operators on a CPU")
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that it works")
    parser.add_argument("--csv", help="write the table here too")
    parser.add_argument("--traces", help="keep the profiles of all ranks in this folder")
    options = parser.parse_args()
    until = time.time() + options.seconds
    table = Table(options.csv)
    with tempfile.TemporaryDirectory() as kernels:
        worlds = Worlds(options, kernels)
        try:
            for at in range(0, len(options.rows), options.together):
                if time.time() < until:
                    worlds.run(options.rows[at : at + options.together], table)
        finally:
            worlds.end()


if __name__ == "__main__":
    main()

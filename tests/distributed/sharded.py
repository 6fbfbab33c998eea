"""Run as one of two ranks: `sharded.py RANK FOLDER [CASE ...]` trains sharded models, compiled or not, and compares."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import torchdynamo

TIMEOUT = timedelta(seconds=25)
WIDTH, STEPS = 16, 3
Compiled = Callable[[Any], Any]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(2)))


def by_blocks(compiled: Compiled, earlier: bool = True, **how: Any) -> nn.Module:
    whole = model()
    for block in whole:
        if earlier:
            block.forward = compiled(block.forward)
        fully_shard(block, **how)
        if not earlier:
            block.forward = compiled(block.forward)
    return fully_shard(whole, **how)


def outside(compiled: Compiled) -> Any:
    return compiled(by_blocks(lambda fn: fn))


def hybrid(compiled: Compiled) -> nn.Module:
    return by_blocks(compiled, mesh=init_device_mesh("cpu", (2, 1), mesh_dim_names=("copies", "shards")))


def mixed(compiled: Compiled) -> nn.Module:
    return by_blocks(compiled, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))


def first_version(compiled: Compiled) -> Any:
    return compiled(FullyShardedDataParallel(model(), use_orig_params=True, device_id=torch.device("cpu")))


def parallel(compiled: Compiled) -> nn.Module:
    whole, mesh = model(), init_device_mesh("cpu", (2,))
    for block in whole:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        block.forward = compiled(block.forward)
    return whole


CASES: dict[str, Callable[[Compiled], Any]] = {
    "blocks": by_blocks,
    "blocks, later": lambda compiled: by_blocks(compiled, earlier=False),
    "kept": lambda compiled: by_blocks(compiled, reshard_after_forward=False),
    "outside": outside,
    "hybrid": hybrid,
    "mixed precision": mixed,
    "offloaded": lambda compiled: by_blocks(compiled, offload_policy=CPUOffloadPolicy(pin_memory=False)),
    "first version": first_version,
    "tensor parallel": parallel,
}


def train(make: Callable[[Compiled], Any], compiled: Compiled) -> list[Any]:
    """Train for some steps; return losses and what this rank has of the parameters."""
    run = make(compiled)
    by_kind: dict[bool, list[Any]] = {}
    for each in run.parameters():
        by_kind.setdefault(isinstance(each, DTensor), []).append(each)
    optimizers = [torch.optim.SGD(each, 0.05) for each in by_kind.values()]
    found: list[Any] = []
    for number in range(STEPS):
        x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(number))
        loss = run(x).float().pow(2).mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        found.append(loss.detach())
    return found + [each.to_local() if isinstance(each, DTensor) else each for each in run.parameters()]


def main() -> None:
    rank, folder, *names = sys.argv[1:]
    torch.set_num_threads(1)
    where = f"file://{folder}/store"
    dist.init_process_group("gloo", rank=int(rank), world_size=2, init_method=where, timeout=TIMEOUT)
    wrong = []
    for name, make in CASES.items():
        if names and name not in names:
            continue
        torchdynamo.reset()
        expected = train(make, lambda fn: fn)
        found = train(make, torchdynamo.optimize("aot_eager"))
        apart = [at for at, (one, other) in enumerate(zip(expected, found, strict=True)) if not torch.equal(one, other)]
        problems = [each["text"] for each in torchdynamo.report()["problems"]]
        graphs = torchdynamo.report()["totals"]["graphs"]
        print(name, f"{graphs} graphs, apart: {apart}", problems, flush=True)
        if apart or problems or not graphs:
            wrong.append(f"{name}: {graphs} graphs, {len(apart)} of {len(found)} values differ; {problems}")
    dist.barrier()
    dist.destroy_process_group()
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()

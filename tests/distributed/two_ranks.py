"""Run as one of two ranks: `two_ranks.py RANK FOLDER` holds compiled programs against eager, and fails on a difference.

Rank 1 alone gets a size that rank 0 never sees, and its backend alone fails in one call.
"""

from __future__ import annotations

import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import torchdynamo

TIMEOUT = timedelta(seconds=25)


def averaged(x: torch.Tensor) -> torch.Tensor:
    total = x * (dist.get_rank() + 1)
    dist.all_reduce(total)
    return total / dist.get_world_size()


def gathered(x: torch.Tensor) -> torch.Tensor:
    parts = x.new_empty(2 * x.shape[0])
    dist.all_gather_single(parts, x + dist.get_rank())
    return parts


def scattered(x: torch.Tensor) -> torch.Tensor:
    mine = torch.empty_like(x)
    dist.reduce_scatter_single(mine, x.repeat(2) * (dist.get_rank() + 1))
    return mine


def sums_rows(x: torch.Tensor) -> torch.Tensor:
    total = x.sum(0)
    dist.all_reduce(total)
    return total * 2


def main() -> None:
    rank, folder = int(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo", rank=rank, world_size=2, init_method=f"file://{folder}/store", timeout=TIMEOUT)
    for program in (averaged, gathered, scattered):
        compiled = torchdynamo.optimize("aot_eager", nopython=True)(program)
        for start in (0.0, 3.0):
            x = torch.arange(start, start + 4)
            torch.testing.assert_close(compiled(x), program(x))
    compiled = torchdynamo.optimize("aot_eager", nopython=True)(sums_rows)
    for rows in (3, 3, 5, 3) if rank else (3, 3, 3, 3):
        x = torch.ones(rows, 2)
        torch.testing.assert_close(compiled(x), sums_rows(x))
    calls = 0

    def failing(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]):
        def run(*args: torch.Tensor):
            nonlocal calls
            calls += 1
            if rank == 1 and calls == 2:
                raise RuntimeError("this rank has no kernel")
            return gm.forward(*args)

        return run

    compiled = torchdynamo.optimize(failing)(averaged)
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 1.5))
    assert calls == 3
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

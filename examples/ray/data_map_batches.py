"""Ray Data: `map_batches` with actors that compile their model once, whatever sizes the batches have.

pip install "torchdynamo-standalone[ray]"
python examples/ray/data_map_batches.py [--rows N] [--backend NAME]
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import numpy as np
import ray.data
import torch
from cluster import cluster
from counted import Counted
from torch import nn

import torchdynamo


class Scorer:
    """An actor: it is made once, so its model is compiled once, for batches of any size."""

    def __init__(self, backend: str) -> None:
        torch.manual_seed(0)
        self.counted = Counted(backend)
        self.model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 1)).eval()
        self.compiled = torchdynamo.compile(self.model, backend=self.counted, dynamic=True)

    @torch.no_grad()
    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, Any]:
        rows = torch.from_numpy(np.ascontiguousarray(batch["x"]))
        scores = self.compiled(rows)
        same = torch.allclose(scores, self.model(rows))
        count = len(rows)
        return {
            "score": scores.squeeze(1).numpy(),
            "same": np.full(count, same),
            "actor": np.full(count, os.getpid()),
            "graphs": np.full(count, self.counted.graphs),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--backend", default="aot_eager")
    given = parser.parse_args()
    with cluster():
        ray.data.DataContext.get_current().enable_progress_bars = False
        x = np.random.default_rng(0).normal(size=(given.rows, 16)).astype(np.float32)
        rows = ray.data.from_numpy(x).rename_columns({"data": "x"})
        scored = rows.map_batches(
            Scorer,
            fn_constructor_args=(given.backend,),
            batch_size=96,
            compute=ray.data.ActorPoolStrategy(size=1),
        )
        begun = time.perf_counter()
        found = scored.to_pandas()
        seconds = time.perf_counter() - begun
    print(f"{len(found)} rows in {seconds:.1f} s, as in eager: {bool(found['same'].all())}")
    print(f"actors: {found['actor'].nunique()}, graphs that each compiled: {found['graphs'].max()}")


if __name__ == "__main__":
    main()

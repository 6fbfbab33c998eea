"""Ray Serve: a deployment that warms up, and then compiles nothing while it serves.

Under `torchdynamo.run()` requests of sizes that were not warmed up run eagerly: none waits for a compiler.

    pip install "torchdynamo-standalone[ray]"
    python examples/ray/serve_run_mode.py [--requests N] [--backend NAME]
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from typing import Any

import torch
from cluster import cluster
from counted import Counted
from ray import serve
from torch import nn

import torchdynamo


@serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 1}, logging_config={"log_level": "ERROR"})
class Model:
    def __init__(self, backend: str, sizes: list[int]) -> None:
        torch.manual_seed(0)
        self.counted = Counted(backend)
        self.model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 1)).eval()
        self.compiled = torchdynamo.compile(self.model, backend=self.counted, dynamic=False)
        with torch.no_grad():
            for size in sizes:
                self.compiled(torch.zeros(size, 16))
        self.warm = self.counted.graphs

    def __call__(self, rows: list[list[float]]) -> dict[str, Any]:
        x = torch.tensor(rows)
        with torch.no_grad(), torchdynamo.run():
            scores = self.compiled(x)
            same = torch.allclose(scores, self.model(x))
        return {
            "scores": scores.squeeze(1).tolist(),
            "same": same,
            "warm": self.warm,
            "compiled": self.counted.graphs - self.warm,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--backend", default="aot_eager")
    given = parser.parse_args()
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    with cluster():
        serve.start(proxy_location="Disabled", logging_config={"log_level": "ERROR"})
        try:
            handle = serve.run(Model.bind(given.backend, [1, 4]), route_prefix=None)
            times, same, answer = [], True, {}
            for request in range(given.requests):
                rows = torch.randn((1, 4, 7)[request % 3], 16).tolist()  # 7 was not warmed up
                begun = time.perf_counter()
                answer = handle.remote(rows).result(timeout_s=60)
                times.append(time.perf_counter() - begun)
                same = same and answer["same"]
        finally:
            serve.shutdown()
    print(f"graphs compiled while warming up: {answer['warm']}, while serving: {answer['compiled']}")
    median, slowest = statistics.median(times) * 1e3, max(times[1:]) * 1e3
    print(f"{given.requests} requests, as in eager: {same}; median {median:.1f} ms, slowest {slowest:.1f} ms")


if __name__ == "__main__":
    main()

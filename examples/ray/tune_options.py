"""Ray Tune: which options of the compiler are best for a model, each tried in a process of its own.

pip install "torchdynamo-standalone[ray]"
python examples/ray/tune_options.py [--backends NAME,NAME] [--calls N]
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from cluster import cluster
from ray import tune
from torch import nn

import torchdynamo


def measure(config: dict[str, Any]) -> dict[str, Any]:
    """Return the time of the first call and the median of the others, for one set of options."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 64)).eval()
    compiled = torchdynamo.compile(model, backend=config["backend"], dynamic=config["dynamic"])
    batches = [torch.randn(size, 64) for size in (8, 16, 24)]
    with torch.no_grad():
        begun = time.perf_counter()
        right = all(torch.allclose(compiled(batch), model(batch), atol=1e-5) for batch in batches)
        first = time.perf_counter() - begun
        times = []
        for index in range(config["calls"]):
            begun = time.perf_counter()
            compiled(batches[index % 3])
            times.append(time.perf_counter() - begun)
    return {"first_s": first, "us": statistics.median(times) * 1e6, "right": right}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", default="eager,aot_eager,inductor")
    parser.add_argument("--calls", type=int, default=300)
    given = parser.parse_args()
    with cluster() as folder:
        space = {
            "backend": tune.grid_search(given.backends.split(",")),
            "dynamic": tune.grid_search([False, True]),
            "calls": given.calls,
        }
        tuner = tune.Tuner(
            tune.with_resources(measure, {"cpu": 1}),
            param_space=space,
            tune_config=tune.TuneConfig(metric="us", mode="min", max_concurrent_trials=1),
            run_config=tune.RunConfig(storage_path=str(folder), name="options", verbose=0),
        )
        results = tuner.fit()
        rows = [(each.config, each.metrics) for each in results]
        best = results.get_best_result().config
    for config, metrics in rows:
        name = f"{config['backend']}, dynamic={config['dynamic']}"
        print(
            f"{name:28} {metrics['us']:8.1f} us a call, {metrics['first_s']:6.2f} s at first, right: {metrics['right']}"
        )
    print(f"best: {best['backend']}, dynamic={best['dynamic']}")


if __name__ == "__main__":
    main()

"""Ray Train: two workers, DDP, and a model that each of them compiles once.

pip install "torchdynamo-standalone[ray]"
python examples/ray/train_ddp.py [--epochs N] [--backend NAME]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import ray.train
import ray.train.torch
import torch
from cluster import cluster
from counted import Counted
from ray.train import Checkpoint, RunConfig, ScalingConfig
from torch import nn

import torchdynamo


def train(config: dict[str, Any]) -> None:
    """Train on one worker; report each epoch's loss, the time of a step, and what was compiled."""
    torch.manual_seed(0)
    rank = ray.train.get_context().get_world_rank()
    model = ray.train.torch.prepare_model(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)))
    counted = Counted(config["backend"])
    compiled = torchdynamo.compile(model, backend=counted)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(512, 32, generator=generator)
    y = x[:, :4].sum(1, keepdim=True)
    for _ in range(config["epochs"]):
        begun = time.perf_counter()
        for batch, wanted in zip(x.split(64), y.split(64)):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(compiled(batch), wanted)
            loss.backward()
            optimizer.step()
        milliseconds = (time.perf_counter() - begun) / 8 * 1e3
        metrics = {"loss": loss.item(), "ms": milliseconds, "graphs": counted.graphs}
        with tempfile.TemporaryDirectory() as folder:  # Ray keeps metrics with a checkpoint
            torch.save(model.state_dict(), Path(folder) / "model.pt")
            ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder) if rank == 0 else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--backend", default="aot_eager")
    given = parser.parse_args()
    with cluster() as folder:
        trainer = ray.train.torch.TorchTrainer(
            train,
            train_loop_config={"epochs": given.epochs, "backend": given.backend},
            torch_config=ray.train.torch.TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=str(folder), name="train"),
        )
        metrics = trainer.fit().metrics
    print(f"after {given.epochs} epochs: loss {metrics['loss']:.4f}, {metrics['ms']:.2f} ms a step")
    print(f"graphs that a worker compiled: {metrics['graphs']}")


if __name__ == "__main__":
    main()

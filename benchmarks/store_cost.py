"""Measure what the store of captures costs a first call: not used, while an entry is written, and on a hit.

    python benchmarks/store_cost.py [--rounds 15] [--backend eager]

CPU milliseconds of the first call, medians of rounds in which the three take turns, in one process with one thread.
What the first captures of a process import and fill is not counted: there is a round before the others.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import torchdynamo

LAYERS = 24
WAYS = {"no store": "off", "written": "on", "hit": "on"}


def four_operators(x: torch.Tensor) -> torch.Tensor:
    """Compute with four operators."""
    return (x.sin() * x + 1).relu()


def network() -> torch.nn.Module:
    """Return a network of some layers."""
    layers = [torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU()) for _ in range(LAYERS)]
    return torch.nn.Sequential(*layers).eval()


def first_call(fn: Callable[..., Any], backend: str, way: str, folder: Path) -> float:
    """Return the CPU seconds of the first call of a function, for a process that has compiled nothing else."""
    torchdynamo.reset()
    torchdynamo.config.cache = WAYS[way]
    os.environ["TORCHDYNAMO_CACHE_DIR"] = str(folder)
    compiled, x = torchdynamo.compile(fn, backend=backend), torch.ones(4, 16)
    begun = time.process_time()
    compiled(x)
    return time.process_time() - begun


def main() -> None:
    """Measure, and print a row for each program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--backend", default="eager")
    given = parser.parse_args()
    torch.set_num_threads(1)
    programs = {"four operators": four_operators, f"{LAYERS} layers": network()}
    print(f"{'CPU ms of the first call':28}" + "".join(f"{way:>12}" for way in WAYS))
    with torch.no_grad():
        for name, fn in programs.items():
            rounds = []
            for _ in range(given.rounds + 1):
                with tempfile.TemporaryDirectory() as folder:
                    rounds.append([first_call(fn, given.backend, way, Path(folder)) for way in WAYS])
            medians = map(statistics.median, zip(*rounds[1:], strict=True))
            print(f"{name:28}" + "".join(f"{1e3 * each:12.1f}" for each in medians))


if __name__ == "__main__":
    main()

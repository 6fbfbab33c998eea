"""Whole programs under a front end, compared with eager: ours, and those kept beside the project, by their runner.

    python benchmarks/programs/run.py list
    python benchmarks/programs/run.py run --front torchdynamo --backend eager --out F.jsonl [--only NAME,NAME]
    python benchmarks/programs/run.py run --front torch --backend eager --out F.jsonl
    python benchmarks/programs/run.py summary F.jsonl
    python benchmarks/programs/run.py why NAME --backend eager

A program is a function `name(seed, compile)` that returns `step(i)`, which does and returns what its author would
call one step, and `state()`, which gives what is left of it all: weights, optimizers, generators. PROGRAMS in the
environment says where the runner is (../shared/programs by default); what its rows say is written there.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNNER = Path(os.environ.get("PROGRAMS", HERE.parents[2] / "shared" / "programs"))
OURS = ("loops", "vision", "language", "science", "reinforcement", "serving", "packages", "further")


def main() -> None:
    os.environ.setdefault("TORCHDYNAMO_CACHE", "0")  # what is measured is captured anew
    if not (RUNNER / "programs.py").exists():
        raise SystemExit(f"no runner at {RUNNER}; set PROGRAMS to the folder that has programs.py")
    sys.path[:0] = [str(RUNNER), str(HERE)]
    runner = importlib.import_module("programs")
    runner.__file__ = __file__  # where the process of each program begins
    for name in OURS:
        importlib.import_module(name)
    runner.main()


if __name__ == "__main__":
    main()

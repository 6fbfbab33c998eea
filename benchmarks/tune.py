"""Search Inductor's options for nine small models, and measure what was found again, against the default.

    OMP_NUM_THREADS=1 python benchmarks/tune.py --seconds 60      # for each model
    python benchmarks/tune.py --seconds 60 --constants --models mixer convolutions

Each model (`tune_models.py`) is searched in a process of its own, with a database of its own. *again* is how many times
faster than the default the choice is, as the median of rounds by turns (in CPU seconds; on a GPU, in seconds), in
another process, which finds the choice in the database; *found in* is the CPU time that takes for a graph there.
`--constants`: parameters may become constants.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from tune_models import MODELS, made

ROUNDS, SHORTEST = 15, 0.1
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def searched(name: str, seconds: float, constants: bool) -> dict[str, Any]:
    import torchdynamo

    model, x = made(name, DEVICE)
    with torch.no_grad():
        (found,) = torchdynamo.tune(model, [x], seconds=seconds, constants=constants).graphs
    print(found, file=sys.stderr)
    tried = sum(row.timing is not None for row in found.rows)
    return {"choice": found.choice, "gain": found.gain, "tried": tried, "of": len(found.rows)}


def now() -> float:
    """The CPU's seconds; the GPU's, when it has nothing left to do."""
    if DEVICE == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def measured(name: str, constants: bool) -> dict[str, Any]:
    """Measure the choice again, and how long it takes to find it."""
    import torchdynamo
    from torchdynamo.backends import option_sets

    model, x = made(name, DEVICE)
    spent: list[float] = []
    choice_for = option_sets.choice_for

    def timed(*args: Any, **kwargs: Any) -> str | None:
        started = time.process_time()
        choice = choice_for(*args, **kwargs)
        spent.append(time.process_time() - started)
        return choice

    option_sets.choice_for = timed
    runs = {
        "default": torchdynamo.compile(model),
        "tuned": torchdynamo.compile(
            lambda x: model(x), options={"tuned": True, **({"freezing": True} if constants else {})}
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    with torch.no_grad():
        for run in runs.values():
            for _ in range(5):
                run(x)
        started = now()
        runs["default"](x)
        count = max(1, int(SHORTEST / max(now() - started, 1e-5)))
        for at in range(ROUNDS):
            for which in sorted(runs, reverse=bool(at % 2)):
                begun = now()
                for _ in range(count):
                    runs[which](x)
                seconds[which].append((now() - begun) / count)
    again = statistics.median(a / b for a, b in zip(seconds["default"], seconds["tuned"], strict=True))
    return {"again": again, "us": statistics.median(seconds["default"]) * 1e6, "ms": min(spent, default=0.0) * 1e3}


def in_a_process(part: str, name: str, options: argparse.Namespace, database: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--part", part, "--models", name, "--seconds", str(options.seconds)]
    command += ["--constants"] if options.constants else []
    environment = {**os.environ, "TORCHDYNAMO_ENSEMBLE_DB": str(database), "TORCHDYNAMO_CACHE": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    if options.verbose:
        print(done.stderr, flush=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seconds", type=float, default=60.0, help="for the search of each model")
    parser.add_argument("--constants", action="store_true", help="parameters may become constants")
    parser.add_argument("--verbose", action="store_true", help="print what became of each set")
    parser.add_argument("--part", choices=("search", "measure"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        (name,) = options.models
        search = options.part == "search"
        given = options.constants
        print(json.dumps(searched(name, options.seconds, given) if search else measured(name, given)))
        return
    print(
        f"{'model':26}{'choice':44}{'tried':>8}{'found':>8}{'again':>8}{'default us':>12}{'found in ms':>13}",
        flush=True,
    )
    gains = []
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            database = Path(folder, "tuned.sqlite3")
            one = in_a_process("search", name, options, database)
            two = in_a_process("measure", name, options, database)
        gains.append(two["again"])
        print(
            f"{name:26}{one['choice']:44}{one['tried']:>5}/{one['of']}{one['gain']:>8.2f}{two['again']:>8.2f}"
            f"{two['us']:>12.0f}{two['ms']:>13.2f}",
            flush=True,
        )
    print(f"geometric mean of 'again': {math.exp(statistics.fmean(map(math.log, gains))):.3f}")


if __name__ == "__main__":
    main()

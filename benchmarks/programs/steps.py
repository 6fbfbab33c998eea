"""Many steps of programs: what is compiled, and how much memory there is, as they go on.

    python benchmarks/programs/steps.py NAME,NAME --steps 1000 --backend eager

One line for each program: graphs made in the first 20 steps, to step 100 and after; the median step in its first and
last hundred, against eager's; and the process's memory after 100 steps and in the end, in MiB.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RUNNER = Path(os.environ.get("PROGRAMS", HERE.parents[2] / "shared" / "programs"))


def memory() -> float:
    """Return the resident memory of this process in MiB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def timed(step: Callable[[int], Any], first: int, last: int) -> list[float]:
    """Run steps; return the milliseconds of processor time of each."""
    found = []
    for number in range(first, last):
        started = time.process_time()
        step(number)
        found.append(1e3 * (time.process_time() - started))
    return found


def run(name: str, backend: str, steps: int) -> None:
    """Run one program with and without torchdynamo, and print its line."""
    sys.path[:0] = [str(RUNNER), str(HERE)]
    programs = importlib.import_module("programs")
    programs.torch_parts()
    kept = programs.declare_vision_operators()
    for each in importlib.import_module("run").OURS:
        importlib.import_module(each)
    import torchdynamo

    made = 0

    def counting(gm: Any, inputs: Any) -> Any:
        nonlocal made
        made += 1
        return torchdynamo.optimizations.BACKENDS[backend](gm, inputs)

    make = programs.PROGRAMS[name]["make"]
    eager = statistics.median(timed(make(0, lambda fn: fn)[0], 0, 60)[20:])
    step, graphs, middle = make(0, lambda fn: fn)[0], [], 0.0

    def compiled(number: int) -> None:
        with torchdynamo.optimize(counting):
            step(number)

    times: list[float] = []
    for first, last in ((0, 20), (20, 100), (100, steps)):
        times += timed(compiled, first, last)
        graphs.append(made)
        middle = memory() if last == 100 else middle
    early, late = statistics.median(times[20:100]), statistics.median(times[-100:])
    print(
        f"{name:28} graphs {graphs[0]:3} {graphs[1] - graphs[0]:3} {graphs[2] - graphs[1]:3} | eager {eager:6.1f} ms, "
        f"to 100 {early:6.1f}, last {late:6.1f} | memory {middle:6.0f}, {memory():6.0f} MiB",
        flush=True,
    )
    del kept


def main() -> None:
    os.environ.setdefault("TORCHDYNAMO_CACHE", "0")  # what is measured is captured anew
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", help="programs, separated by commas")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    names = args.names.split(",")
    if len(names) == 1:
        run(names[0], args.backend, args.steps)
    for name in names if len(names) > 1 else ():
        options = ["--backend", args.backend, "--steps", str(args.steps)]
        subprocess.run([sys.executable, "-W", "ignore", __file__, name, *options], check=False)


if __name__ == "__main__":
    main()

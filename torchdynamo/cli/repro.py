"""The command `repro`: write a script that repeats the failure of a backend on a recorded graph."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from torchdynamo.backends.ensemble.recorded import GRAPH
from torchdynamo.errors import RecordError
from torchdynamo.repro.case import Case
from torchdynamo.repro.minify import minify
from torchdynamo.repro.script import count_of, script_of


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m torchdynamo repro",
        description="Write a script that runs a recorded graph by a backend, and exits with 1 if the backend fails. "
        "TORCHDYNAMO_REPRO=folder records the graphs on which a backend fails, and messages then end with the command.",
    )
    made.add_argument("folder", type=Path, help="a graph that TORCHDYNAMO_REPRO, or torchdynamo.record, wrote")
    made.add_argument(
        "--backend",
        default="inductor",
        metavar="NAME|MODULE:NAME|FILE.py:NAME",
        help="the backend (default: inductor); a module or file is imported, so its program needs `if __name__ == ...`",
    )
    made.add_argument("--mode", help="the backend's mode")
    made.add_argument("--options", type=json.loads, metavar="JSON", help="the backend's options")
    made.add_argument(
        "--accuracy", action="store_true", help="compare errors against float64 with eager's, rather than results"
    )
    made.add_argument("--minify", action="store_true", help="cut the graph to the fewest operators; runs the backend")
    made.add_argument(
        "--timeout", type=float, default=120.0, metavar="SECONDS", help="of the backend for a graph (default: 120)"
    )
    made.add_argument("--out", type=Path, metavar="FILE.py", help="the script (default: repro_GRAPH.py)")
    return made


def main(given: Sequence[str]) -> int:
    """Write the script. Returns 0, 2 for bad input or a graph that cannot run here."""
    found = parser().parse_args(given)
    owner, _, name = found.backend.rpartition(":")
    backend = f"{os.path.abspath(owner)}:{name}" if owner.endswith(".py") else found.backend
    settings = {name: value for name in ("mode", "options") if (value := getattr(found, name)) is not None}
    try:
        folder = graph_in(found.folder)
        case = Case.of_folder(folder, backend, settings, found.accuracy)
        out = found.out or Path(f"repro_{folder.name[:8]}.py")
        return cut(case, out, found.timeout) if found.minify else write(case, out)
    except (RecordError, OSError, ValueError) as error:
        print(f"python -m torchdynamo repro: {error}", file=sys.stderr)
        return 2


def graph_in(folder: Path) -> Path:
    """Return the folder of a graph: this one, or the only one in it. Raises ValueError if there is no such."""
    if (folder / GRAPH).exists():
        return folder.resolve()
    found = sorted(each.parent for each in folder.glob(f"*/{GRAPH}"))
    if len(found) == 1:
        return found[0]
    several = f"has {len(found)} graphs, name one: {', '.join(each.name for each in found)}"
    raise ValueError(f"{folder} {several if found else 'has no recorded graph'}")


def cut(case: Case, out: Path, seconds: float) -> int:
    """Write the smallest part of a case that fails as a script. Returns 0, or 2 for a graph that cannot run here."""
    print(f"running backend {case.backend} on {count_of(case)} operators", file=sys.stderr)
    result = minify(case, seconds)
    if result.error:
        print(f"python -m torchdynamo repro: {result.error}", file=sys.stderr)
    if result.failure is None and result.error:
        return 2
    if result.failure is None:
        print(f"nothing fails: backend {case.backend} does what eager does")
        return 0
    print(result.failure)
    return write(result.case, out)


def write(case: Case, out: Path) -> int:
    """Write a case as a script, and say where. Returns 0."""
    out.write_text(script_of(case))
    count = count_of(case)
    print(f"{out}: {count} operator{'s' if count != 1 else ''}; to run it: python {out}")
    return 0

"""The command line of the benchmark runner."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from torchdynamo.bench import processes
from torchdynamo.bench.backends import EAGER, BackendSpec
from torchdynamo.bench.measure import METRICS, BenchRequest, Measured, load
from torchdynamo.bench.models import MODELS
from torchdynamo.bench.results import ResultFile
from torchdynamo.bench.table import header, table
from torchdynamo.errors import TorchDynamoError


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser("python -m torchdynamo.bench", description=__doc__)
    metric = made.add_mutually_exclusive_group()
    for name in METRICS:
        metric.add_argument(f"--{name}", dest="metric", action="store_const", const=name)
    made.set_defaults(metric="speedup")
    made.add_argument("--backends", default="inductor", help='names with options: "inductor,ensemble:tune=now"')
    made.add_argument("--batch", default="1", help="batch sizes: 1,8")
    made.add_argument("--only", default="", help="a regular expression for names of models")
    made.add_argument("--threads", type=int, default=0, help="torch.set_num_threads; 0 leaves it as it is")
    made.add_argument("--seconds", type=float, default=5.0, help="of timed rounds for each model")
    made.add_argument("--rounds", type=int, default=0, help="a number of rounds, instead of seconds")
    made.add_argument("--settle", type=float, default=60.0, help="seconds that the ensemble may take to choose")
    made.add_argument("--timeout", type=float, default=900.0, help="seconds for each model's process")
    made.add_argument("--device", default="cpu", help="cpu or cuda")
    made.add_argument("--out", type=Path, default=Path("bench.csv"))
    made.add_argument(
        "--fresh", action="store_true", help="forget what --out has; else only what is missing is measured"
    )
    made.add_argument("--import", dest="imports", action="append", default=[], help="a file or module to run first")
    made.add_argument("--list", action="store_true", help="print the models and stop")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark. Returns the exit status: 0, 1 if a model failed, 2 for bad input."""
    given = parser().parse_args(arguments)
    console = Console()
    load(given.imports)
    names = [name for name in MODELS if re.search(given.only, name)]
    if given.list:
        console.print("\n".join(names))
        return 0
    try:
        specs = [BackendSpec.of(text) for text in given.backends.split(",")]
        results = ResultFile(given.out, given.fresh)
        batches = [int(each) for each in given.batch.split(",")]
    except (TorchDynamoError, ValueError, TypeError) as error:
        print(error, file=sys.stderr)
        return 2
    backends = list(dict.fromkeys([EAGER, *(spec.text for spec in specs)]))
    wanted = [(name, batch) for name in names for batch in batches]
    missing = [each for each in wanted if not results.has(given.metric, *each, expected(given.metric, backends))]
    console.print(header(given.threads), highlight=False)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(given.metric, total=len(missing))
        for name, batch in missing:
            progress.update(task, description=name)
            request = BenchRequest(
                *(name, batch, given.metric, backends, given.threads, given.seconds, given.rounds, given.settle),
                *(given.imports, given.device, ""),
            )
            results.add(given.metric, name, batch, given.threads, measure(request, given.timeout))
            progress.advance(task)
    shown = [row for row in results.rows if (row.model, row.batch) in set(wanted)]
    console.print(table(shown, given.metric))
    return int(any(row.metric == given.metric and row.remark and not row.backend for row in shown))


def expected(metric: str, backends: list[str]) -> list[str]:
    """Return the backends that rows of a metric have."""
    return ["eager"] if metric == "coverage" else backends


def measure(request: BenchRequest, timeout: float) -> list[Measured]:
    """Measure one model: by one process, or by one for each backend where a cold start is wanted."""
    if request.metric != "cold-start":
        return processes.run(request, timeout)
    found = [processes.run(request._replace(backends=[each]), timeout) for each in request.backends]
    return [row for rows in found for row in rows]


if __name__ == "__main__":
    sys.exit(main())

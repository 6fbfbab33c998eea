"""The command line: `python -m torchdynamo VERB`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from torchdynamo.bench import __main__ as bench
from torchdynamo.cli import cache, diff, doctor, explain, export, reason, report, repro, run
from torchdynamo.tuning import command as tune

VERBS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "bench": (bench.main, "measure models under one or several backends"),
    "cache": (cache.main, "list, check and remove what is stored of earlier processes' captures"),
    "diff": (diff.main, "compare two saved reports: breaks, recompiles, graphs, time"),
    "doctor": (doctor.main, "check torch, compilers, caches and the GPU, and say what to type if something is wrong"),
    "explain": (explain.main, "call a function or a model once, and show its graphs, breaks and guards"),
    "export": (export.main, "capture a call as one graph, and write it as a .pt2 file"),
    "reason": (reason.main, "explain a reason, such as TD101, with a program and what to write instead"),
    "report": (report.main, "show a report that was saved, or write it as a page"),
    "repro": (repro.main, "write a script that repeats the failure of a backend, with the fewest operators"),
    "run": (run.main, "run a program, compiled, and show what was compiled, what broke, and what that costs"),
    "tune": (tune.main, "find the fastest member of the ensemble for each recorded graph"),
}


def main(arguments: Sequence[str]) -> int:
    """Run a verb with its own arguments. Returns the exit status: 2 for an unknown verb."""
    verb, *rest = arguments or ("",)
    if verb in VERBS:
        return VERBS[verb][0](rest)
    lines = [f"  {name:8}{text}" for name, (_, text) in VERBS.items()]
    print("\n".join(["python -m torchdynamo VERB ...", *lines]), file=sys.stderr)
    return 0 if verb in ("-h", "--help") else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

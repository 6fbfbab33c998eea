"""Run a case that a script holds, in a process of its own, and say whether the backend fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import torch.fx

from torchdynamo.backends.ensemble.graph_data import nodes_of
from torchdynamo.errors import RecordError
from torchdynamo.repro.case import Case, NoSuchBackend
from torchdynamo.repro.failure import ended_by, failure_of

HERE = "--here"
FAILS, CANNOT_RUN = 1, 2


def main(
    graph: torch.fx.Graph,
    meta: Mapping[str, Any],
    contents: str,
    backend: str,
    settings: Mapping[str, Any] | None = None,
    accuracy: bool = False,
) -> int:
    """Run a graph by a backend and print how that fails. Scripts of `python -m torchdynamo repro` end with this.

    meta, contents: the inputs, as such a script holds them.
    backend: its name, MODULE:NAME or FILE.py:NAME. settings: its `mode` and `options`.
    accuracy: compare with results in float64 rather than with eager's.

    Returns the exit status: 1 if the backend fails or ends the process, 0 if it does what eager does, 2 if the graph or
    the backend cannot be made here. The script runs once more as a child process, unless it was called with `--here`.
    """
    if HERE not in sys.argv:
        status = subprocess.run([sys.executable, *sys.argv, HERE], check=False).returncode
        if status in (0, FAILS, CANNOT_RUN):
            return status
        print(ended_by(status), flush=True)
        return FAILS
    try:
        failure = failure_of(Case(nodes_of(graph), meta, contents, backend, settings or {}, accuracy))
    except (RecordError, NoSuchBackend) as error:
        print(f"this cannot run here: {error}", file=sys.stderr)
        return CANNOT_RUN
    print(failure or f"nothing fails: backend {backend} does what eager does", flush=True)
    return FAILS if failure else 0

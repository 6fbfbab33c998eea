"""Cut the graph of a case to the fewest operators, in another process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from torchdynamo.backends.ensemble.processes import why
from torchdynamo.repro.case import Case
from torchdynamo.repro.cutting import CutResult

CUTTING = "torchdynamo.repro.cutting"


def minify(case: Case, seconds: float) -> CutResult:
    """Return the smallest part of a graph on which the backend fails as on the whole, and how it fails.

    seconds: how long the backend may take for a graph. Whatever becomes of the other process is in the result.
    """
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    environment = {name: value for name, value in os.environ.items() if name not in _RECORDING}
    ignored = ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), _IGNORED)))
    environment.update(PYTHONPATH=paths, PYTHONWARNINGS=ignored)
    with tempfile.TemporaryDirectory(prefix="torchdynamo-repro-") as folder:
        given, out = Path(folder, "case.json"), Path(folder, "result.json")
        given.write_text(case.text())
        line = [sys.executable, "-m", CUTTING, str(given), str(out), str(seconds)]
        process = subprocess.run(line, cwd=folder, env=environment, check=False)
        if not out.exists():
            return CutResult(case, None, why(process.returncode, ""))
        result = CutResult.read(out)
    return result if process.returncode == 0 else result._replace(error=why(process.returncode, ""))


_RECORDING = ("TORCHDYNAMO_RECORD", "TORCHDYNAMO_REPRO", "TORCHDYNAMO_REPORT")
"""Variables that would record the graphs that are tried."""
_IGNORED = "ignore::UserWarning:multiprocessing.resource_tracker"
"""A warning filter: a backend that ends its process leaves locks behind."""

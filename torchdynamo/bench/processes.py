"""Measure each model in a process of its own, so that a crash or an endless compile costs one row."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from torchdynamo.bench.measure import BenchRequest, Measured


def run(request: BenchRequest, timeout: float) -> list[Measured]:
    """Return what a process measured; one row that says why, if it did not end well. timeout: seconds."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.jsonl"
        text = json.dumps(request._replace(out=str(out))._asdict())
        command = [sys.executable, "-m", "torchdynamo.bench.measure", text]
        try:
            # each process measures by itself, and captures anew, unless somebody says otherwise
            environment = {"TORCHDYNAMO_ENSEMBLE_DB": "", "TORCHDYNAMO_CACHE": "0", **os.environ}
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout, check=False, env=environment
            )
        except subprocess.TimeoutExpired:
            return [failed(f"stopped after {timeout:.0f} s")]
        if ended.returncode or not out.exists():
            return [failed(why(ended.returncode, ended.stderr))]
        return [Measured(**json.loads(line)) for line in out.read_text().splitlines()]


def failed(reason: str) -> Measured:
    """Return the row of a process that measured nothing."""
    return Measured("", 0.0, remark=reason)


def why(status: int, stderr: str) -> str:
    """Return in one line how a process ended."""
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    lines = [line for line in stderr.strip().splitlines() if line.strip()]
    last = lines[-1] if lines else f"exit status {status}"
    if last.startswith(("ModuleNotFoundError", "ImportError")):
        return f"not available: {last.partition(': ')[2]}"
    return last[:200]

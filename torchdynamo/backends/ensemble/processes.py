"""Run a process within limits of time and memory; how it ends is a result."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from torchdynamo.backends.ensemble.database import Row
from torchdynamo.backends.ensemble.requests import TrialAnswer, TrialRequest

POLL = 0.1  # seconds between looks at the memory


_running: set[subprocess.Popen[bytes]] = set()


@atexit.register
def end_all() -> None:
    """End the processes that threads still wait for as the program ends."""
    for process in list(_running):
        process.kill()


os.register_at_fork(after_in_child=_running.clear)


def run(
    module: str, request: TrialRequest, timeout: float, memory: float, environment: Mapping[str, str] | None = None
) -> TrialAnswer:
    """Return what a process answers; for one that does not, a row for each member that says what became of it.

    timeout: seconds. memory: MiB of resident memory; 0 for no limit. environment: of the process; by default, that of
    this one. Raises OSError if no process can be started.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, said = Path(folder) / "rows.json", Path(folder) / "stderr"
        command = [sys.executable, "-m", module, request._replace(out=str(out)).text()]
        with said.open("w") as stderr:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr, env=environment)
            _running.add(process)
            state, reason = watched(process, timeout, memory)
            _running.discard(process)
        if state == "ended" and process.returncode == 0 and out.exists():
            return TrialAnswer.read(out)
        if state == "ended":
            state, reason = "crashed", why(process.returncode, said.read_text())
        return TrialAnswer([Row(name, state, reason) for name in request.members])


def watched(process: subprocess.Popen[bytes], timeout: float, memory: float) -> tuple[str, str]:
    """Wait for a process, and end it at a limit. Returns ("ended", ""), or the limit's state and reason."""
    end = time.monotonic() + timeout
    try:
        while process.poll() is None:
            used = resident(process.pid)
            if time.monotonic() > end:
                return "timeout", f"stopped after {timeout:.0f} s"
            if memory and used > memory:
                return "memory", f"stopped at {used:.0f} MiB; the limit is {memory:.0f}"
            time.sleep(POLL)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return "ended", ""


def resident(pid: int) -> float:
    """Return the resident memory of a process in MiB; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = [line.split()[1] for line in text.splitlines() if line.startswith("VmRSS:")]
    return int(found[0]) / 1024 if found else 0.0


def why(status: int, said: str) -> str:
    """Return in one line how a process ended."""
    if status < 0:
        return f"the process was ended by {signal.Signals(-status).name}"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return (lines[-1] if lines else f"the process ended with status {status}")[:300]

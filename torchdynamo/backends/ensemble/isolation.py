"""Try a member in a process of its own before it is built in this one: a crash there costs the member, not the program.

The graph travels as data (`record.py`), its inputs by their statistics. A thread waits for the process, so the program
goes on meanwhile.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path

from torchdynamo.backends.ensemble import processes, record
from torchdynamo.backends.ensemble.database import Row
from torchdynamo.backends.ensemble.member import Member
from torchdynamo.backends.ensemble.requests import TrialRequest
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.errors import RecordError

TRIAL = "torchdynamo.backends.ensemble.trial"
SECONDS = 120.0
"""How long a process may take to import, build and try a member."""
MEMORY_SHARE = 0.5
"""The share of the memory that is free when it starts that a process may take."""


class IsolatedTrial:
    """One member for one graph, built and tried in a process that starts at once and ends by itself."""

    def __init__(self, member: Member, subgraph: Subgraph) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="torchdynamo-trial-")
        self.name = member.name
        self.row: Row | None = None
        self.thread = threading.Thread(target=self._wait, daemon=True, name=f"torchdynamo: trial of {member.name}")
        try:
            graph = record.write(Path(self.folder.name), subgraph.gm, subgraph.example_inputs)
        except RecordError as error:
            self.row = Row(member.name, "declined", f"another process cannot be given the graph: {error.text}")
            return
        module = member.build.__module__
        if module == "__main__":
            self.row = Row(member.name, "declined", "another process cannot import it from __main__")
            return
        folder = str(Path(self.folder.name) / graph)
        self.request = TrialRequest(folder, [member.name], subgraph.constants, [module], SECONDS)
        self.thread.start()

    @property
    def is_over(self) -> bool:
        return not self.thread.is_alive()

    @property
    def outcome(self) -> Row:
        """The row of a trial that is over. One whose process was lost, as after a fork, failed."""
        return self.row or Row(self.name, "failed", "its trial in another process was lost")

    def wait(self, seconds: float) -> None:
        """Wait for the trial to end, but no longer than so many seconds."""
        if self.thread.is_alive():
            self.thread.join(max(seconds, 0.0))

    def _wait(self) -> None:
        try:
            answer = processes.run(TRIAL, self.request, SECONDS, free_memory() * MEMORY_SHARE, environment())
            self.row = answer.rows[0]
        except OSError as error:
            self.row = Row(self.name, "failed", f"no other process could try it: {error}")
        finally:
            self.folder.cleanup()


def environment() -> dict[str, str]:
    """Return the environment of a trial: it imports from where this process does, and records nothing."""
    given = {name: value for name, value in os.environ.items() if name != record.VARIABLE}
    return given | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def free_memory() -> float:
    """Return the memory that processes may still take, in MiB; 0 where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0.0
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) / 1024 if found else 0.0

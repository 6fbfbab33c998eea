"""Run cases in a process that may crash or hang; a new one takes its place then."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from multiprocessing.connection import Connection

from torchdynamo.errors import RecordError
from torchdynamo.repro.case import Case, NoSuchBackend
from torchdynamo.repro.failure import Failure, ended_by, failure_of


class CannotRun(Exception):
    """Raised for a case that cannot run here: its graph or its backend cannot be made."""


class Trials:
    """A process that runs one case after the other. Use as a context manager, which ends it.

    It is forked by a server that has imported torch and computed nothing, and runs a case in eager first: no time for
    that counts as the backend's.
    """

    def __init__(self, first: Case, timeout: float) -> None:
        """Describe the process. first: what it runs in eager. timeout: seconds that a case may take."""
        self.first, self.timeout = first._replace(backend="eager", settings={}), timeout
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload([__name__])
        self.process: multiprocessing.process.BaseProcess | None = None
        self.pipe: Connection | None = None

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def failure_of(self, case: Case) -> Failure | None:
        """Return how the backend fails, None if it does not. Raises CannotRun."""
        pipe = self.pipe or self.start()
        pipe.send(case.text())
        if not pipe.poll(self.timeout):
            self.end()
            return Failure("does not end", "", f"stopped after {self.timeout:.0f} s")
        try:
            kind, what, text = pipe.recv()
        except (EOFError, OSError):
            return ended_by(self.end())
        if kind == "cannot run":
            raise CannotRun(text)
        return Failure(kind, what, text) if kind else None

    def start(self) -> Connection:
        """Start the process; return the pipe to it."""
        self.pipe, theirs = self.context.Pipe()
        self.process = self.context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        with contextlib.suppress(EOFError, OSError):  # the case itself will show how it ends the process
            self.pipe.send(self.first.text())
            self.pipe.recv()
        return self.pipe

    def end(self) -> int:
        """End the process, if there is one. Returns its exit status: minus the signal for one that a signal ended."""
        if self.process is None or self.pipe is None:
            return 0
        self.pipe.close()
        self.process.join(1.0)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        status = self.process.exitcode or 0
        self.process = self.pipe = None
        return status


def serve(pipe: Connection) -> None:
    """Answer the cases that come through a pipe with (kind, what, text), until it is closed. Print nothing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            try:
                answer = tuple(failure_of(Case.of_text(pipe.recv())) or ("", "", ""))
            except (RecordError, NoSuchBackend) as error:
                answer = ("cannot run", "", str(error))
            pipe.send(answer)

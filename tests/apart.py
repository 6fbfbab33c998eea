"""Runs what may crash, hang or change the whole process in a process of its own."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """What a command left: its exit status, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def command_in_a_fork(*arguments: object, cwd: Path | None = None, **variables: str) -> Ended:
    """Run `python -m torchdynamo` with arguments in a copy of this process, which has imported it.

    For what a command does, not for how a process begins: that takes 3 s more, and variables that an import reads, as
    those of logs, have no effect here. With a GPU the command has a new process, since CUDA does not work in a
    copy of one that has asked for it.
    """
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        line = [sys.executable, "-m", "torchdynamo", *map(str, arguments)]
        there = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables}
        done = subprocess.run(line, cwd=cwd, env=there, capture_output=True, text=True, timeout=300, check=False)
        return Ended(done.returncode, done.stdout, done.stderr)

    def call() -> Ended:
        from torchdynamo.__main__ import main

        os.environ.update(variables)
        if cwd is not None:
            os.chdir(cwd)
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            try:
                status = main([*map(str, arguments)])
            except SystemExit as leaving:  # as argparse and programs do
                status = int(leaving.code or 0)
        return Ended(status, out.getvalue(), err.getvalue())

    found: Ended = in_a_fork(call, 300)
    return found


def in_a_fork(call: Callable[[], Any], seconds: float = 60) -> Any:
    """Call a function in a copy of this process, and return what it returns there, by pickle.

    Raises AssertionError, with what the copy wrote to its stderr, if it raised, crashed, or took longer than `seconds`.
    """
    read, write = os.pipe()
    with tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            os.close(read)
            _answer(call, write, errors.fileno())
        os.close(write)
        answer = _read(read, child, time.monotonic() + seconds)
        _, status = os.waitpid(child, 0)
        errors.seek(0)
        said = errors.read().decode(errors="replace")[-6000:]
    assert status == 0 and answer is not None, f"{_ending(status)}\n{said}"
    return pickle.loads(answer)


def _answer(call: Callable[[], Any], write: int, errors: int) -> None:
    """Write what the call returns to the pipe, and end the process, whatever comes."""
    status = 1
    try:
        os.dup2(errors, 2)
        faulthandler.enable(file=2)
        sys.settrace(None)
        data = pickle.dumps(call())
        while data:
            data = data[os.write(write, data) :]
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def _read(read: int, child: int, until: float) -> bytes | None:
    """Return what comes through the pipe; None if it does not end in time, and the child is ended then."""
    parts = []
    with os.fdopen(read, "rb", buffering=0) as pipe:
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                os.kill(child, signal.SIGABRT)  # faulthandler says where it was
                return None
            part = pipe.read(1 << 16)
            if not part:
                return b"".join(parts) or None
            parts.append(part)


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended with status {os.WEXITSTATUS(status)}"

"""Show on a terminal what is being compiled, once that takes more than two seconds."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from rich.console import Console
from rich.text import Text

from torchdynamo import config, events
from torchdynamo.codegen import resume

PATIENCE = 2.0
"""Seconds after which a compilation is shown."""
INTERVAL = 0.25
"""Seconds between two updates."""


def wanted() -> bool:
    """Return whether somebody can see it: standard error is a terminal, and this is no worker process."""
    return config.progress and sys.stderr.isatty() and multiprocessing.parent_process() is None


@contextlib.contextmanager
def shown(code: CodeType) -> Iterator[None]:
    """Show a line for the compilation of a frame that runs in the block, if it takes long; it is gone afterwards."""
    if not wanted():
        yield
        return
    done = threading.Event()
    compiling, users = threading.get_ident(), resume.origin(code)
    what = f"{users.code.co_name} ({Path(users.code.co_filename).name}:{users.line})"
    watcher = threading.Thread(target=_watch, args=(what, compiling, done), name="torchdynamo progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _watch(what: str, compiling: int, done: threading.Event) -> None:
    """Show what a thread compiles until that is done; runs in a thread of its own, and uses nothing of torch."""
    began = time.monotonic()
    if done.wait(PATIENCE):
        return
    with Console(stderr=True).status("") as status:
        while True:
            seconds = time.monotonic() - began
            status.update(Text(f"torchdynamo: {what}: {events.phase_of(compiling)}, {seconds:.0f} s"))
            if done.wait(INTERVAL):
                return

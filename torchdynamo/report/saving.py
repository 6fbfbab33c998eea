"""Write reports to files, at once or when a process ends: `TORCHDYNAMO_REPORT=out.json python program.py`."""

from __future__ import annotations

import atexit
import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from torchdynamo.report.summary import FORMAT, Report, report

WRITERS: dict[str, Callable[[Report], str]] = {
    ".json": Report.to_json,
    ".html": Report.to_html,
    ".trace.json": Report.to_trace,
}
"""How a report is written, by what the file's name ends in; the longest that fits counts."""


def save(found: Report, path: str | os.PathLike[str]) -> None:
    """Write a report to a file, in the format that its suffix names.

    Raises ValueError for another suffix, and OSError if the file cannot be written.
    """
    writer_of(path)
    Path(path).write_text(writer_of(path)(found))


def writer_of(path: str | os.PathLike[str]) -> Callable[[Report], str]:
    """Return what writes a report in the format of a file. Raises ValueError for a suffix that names none."""
    suffix = suffix_of(path)
    if suffix not in WRITERS:
        raise ValueError(f"a report is written to a file that ends in {', '.join(WRITERS)}, not to {str(path)!r}")
    return WRITERS[suffix]


def suffix_of(path: str | os.PathLike[str]) -> str:
    """Return what names the format of a file: the end of its name in WRITERS, or else its suffix."""
    name = Path(path).name
    return max((suffix for suffix in WRITERS if name.endswith(suffix)), key=len, default=Path(path).suffix)


def load(path: str | os.PathLike[str]) -> Report:
    """Return the report that was written to a file as JSON.

    Raises ValueError if the file is no report of this format, and OSError if it cannot be read.
    """
    try:
        found = json.loads(Path(path).read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict) or "format" not in found:
        raise ValueError(f"{path} is not a report of torchdynamo: write one by torchdynamo.report().to_json({path!r})")
    if found["format"] != FORMAT:
        raise ValueError(f"{path} has format {found['format']!r}; this torchdynamo reads format {FORMAT}")
    return Report(found)


def path_of_rank(path: str, environment: Mapping[str, str]) -> str:
    """Return the file of this process: `out.rank3.json` for `out.json` where a launcher has numbered the processes."""
    rank = environment.get("RANK", "")
    suffix = suffix_of(path)
    return f"{path.removesuffix(suffix)}.rank{rank}{suffix}" if rank.isdigit() else path


def save_at_exit(path: str) -> None:
    """Write the report of this process when it ends, and at SIGUSR1; a handler that is there is called too.

    Raises ValueError for a suffix that names no format.
    """
    writer_of(path)
    process = os.getpid()

    def write() -> None:
        if os.getpid() == process:  # no child by fork, such as a DataLoader's worker
            save(report(), path)

    def write_now(number: int, frame: FrameType | None) -> Any:
        write()
        if callable(before):
            before(number, frame)

    atexit.register(write)
    before = signal.getsignal(signal.SIGUSR1)
    try:
        signal.signal(signal.SIGUSR1, write_now)
    except ValueError:
        return  # only the main thread can take signals


def follow_environment(environment: Mapping[str, str]) -> None:
    """Write the report to the file that TORCHDYNAMO_REPORT names when the process ends. Raises ValueError as above."""
    path = environment.get("TORCHDYNAMO_REPORT")
    if path:
        save_at_exit(path_of_rank(path, environment))

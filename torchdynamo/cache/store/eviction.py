"""Keep the store small: what has not been used for longest goes first."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from torchdynamo.cache.store import places

MOST = 1 << 30  # bytes
MOST_OF_A_FRAME = 8  # entries
ABANDONED = 3600.0  # seconds after which a temporary file, or an empty folder, is nobody's
EVERY = 3600.0  # seconds between two times that processes which end look through a store


class KeptFile(NamedTuple):
    """A file of the store."""

    used: float
    size: int
    path: Path


def kept(root: Path) -> Iterator[KeptFile]:
    """Yield the files of a store."""
    for folder, _, names in os.walk(root / places.FORMAT):
        for name in names:
            path = Path(folder) / name
            with contextlib.suppress(OSError):
                found = path.lstat()
                yield KeptFile(found.st_mtime, found.st_size, path)


def size(root: Path) -> int:
    """Return how many bytes a store takes."""
    return sum(each.size for each in kept(root))


def prune(root: Path, most: int = MOST, older: float | None = None) -> list[Path]:
    """Remove the files used least lately until a store has at most so many bytes; return those removed.

    older: remove all that have not been used for so many seconds. Processes that read a file meanwhile keep it open,
    and one that does not find it misses.
    """
    now, removed = time.time(), []
    files = sorted(kept(root))
    left = sum(each.size for each in files)
    for each in files:
        temporary = each.path.name.startswith(".")
        too_old = older is not None and now - each.used > older
        if left > most or too_old or (temporary and now - each.used > ABANDONED):
            with contextlib.suppress(OSError):
                each.path.unlink()
                removed.append(each.path)
                left -= each.size
    for folder in (root / places.FORMAT / "frames").glob("*"):
        with contextlib.suppress(OSError):  # it has entries again, or another process has removed it
            if now - folder.stat().st_mtime > ABANDONED:
                folder.rmdir()
    return removed


def prune_if_due(root: Path) -> None:
    """Make a store small, unless this or another process has done so within the hour: looking through it takes time."""
    folder = root / places.FORMAT
    with contextlib.suppress(OSError):
        if time.time() - folder.stat().st_mtime > EVERY:
            os.utime(folder)
            prune(root)


def make_room(folder: Path) -> None:
    """Remove the entries of a frame that were used least lately, so that there is room for one more."""
    there = places.by_use(folder)
    for path in there[: max(0, len(there) + 1 - MOST_OF_A_FRAME)]:
        with contextlib.suppress(OSError):
            path.unlink()

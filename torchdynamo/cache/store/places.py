"""Find the store, and decide whether to trust it: who can write to it decides what runs in this process.

A folder or a file counts if it belongs to this user, or to root, nobody else may write to it, and it is no link. That
is asked of the open file, before a byte of it is read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

FORMAT = "v1"
LARGEST = 1 << 28  # bytes of a file


class Untrusted(Exception):
    """Raised for a file or folder that others may have written."""


def folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the store: `$TORCHDYNAMO_CACHE_DIR`, or `torchdynamo` in the user's folder of caches."""
    own = environment.get("TORCHDYNAMO_CACHE_DIR")
    if own:
        return Path(own)
    return Path(_caches(environment)) / "torchdynamo"


def is_somewhere(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether there is a place for the store: not for a user without a home, or with the home of another.

    Root, with the home of a user, would leave folders there that this user cannot use.
    """
    if environment.get("TORCHDYNAMO_CACHE_DIR"):
        return True
    named = Path(environment.get("XDG_CACHE_HOME", ""))
    try:
        place = _existing(named) if named.is_absolute() else Path(os.path.expanduser("~"))
        owner = os.stat(place).st_uid
    except OSError:
        return False
    return place.is_absolute() and owner in _trusted_owners()


def _caches(environment: Mapping[str, str]) -> str:
    """Return the user's folder of caches."""
    named = environment.get("XDG_CACHE_HOME", "")
    return named if os.path.isabs(named) else os.path.join(os.path.expanduser("~"), ".cache")


def _existing(path: Path) -> Path:
    """Return a path, or the folder next above it that exists. Raises OSError."""
    return next(each for each in (path, *path.parents) if each.exists())


def _trusted_owners() -> tuple[int, ...]:
    """Return who may own what is used: this user and root. Where there are no users, files belong to number 0."""
    return (os.getuid(), 0) if hasattr(os, "getuid") else (0,)


def baked(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the read-only folders that `$TORCHDYNAMO_CACHE_TRUST` names, which an image has."""
    named = environment.get("TORCHDYNAMO_CACHE_TRUST", "")
    return [Path(each) for each in named.split(os.pathsep) if each]


def frames_in(root: Path, key: str) -> Path:
    """Return the folder of the entries of a frame."""
    return root / FORMAT / "frames" / key


def blobs_in(root: Path) -> Path:
    """Return the folder of what backends have compiled, named by its contents."""
    return root / FORMAT / "blobs"


def notes_in(root: Path) -> Path:
    """Return the folder of reasons that `cache why` tells."""
    return root / FORMAT / "notes"


def made_private(path: Path) -> Path:
    """Return a folder that only this user can use, created if it is missing.

    Raises Untrusted if others may write to it, OSError if it cannot be made.
    """
    there = _existing(path)
    missing = [part for part in (path, *path.parents) if part != there and part.is_relative_to(there)]
    for part in reversed(missing):
        part.mkdir(mode=0o700, exist_ok=True)
    check(path, os.lstat(path))
    return path


def check(path: Path, found: os.stat_result) -> None:
    """Raise Untrusted unless a file or folder belongs to this user or root, and only they can write to it."""
    if found.st_uid not in _trusted_owners():
        raise Untrusted(f"{path} belongs to another user")
    if stat.S_ISLNK(found.st_mode):
        raise Untrusted(f"{path} is a link")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Untrusted(f"others may write to {path}")


def contents(path: Path) -> bytes:
    """Return the contents of a file that can be trusted. Raises Untrusted or OSError."""
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(number, "rb") as file:
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            raise Untrusted(f"{path} is no file of the store")
        check(path, found)
        return file.read()


def blob_at(root: Path, digest: str) -> Path:
    """Return the path of a blob in a folder that can be trusted. Raises Untrusted or OSError."""
    path = blobs_in(root) / digest
    if not digest.isalnum():
        raise Untrusted(f"{path} is no file of the store")
    check_folders(root, FORMAT, "blobs")
    return path


def check_folders(root: Path, *parts: str) -> None:
    """Raise Untrusted unless a store and the folders on the way into it can be trusted, OSError if one is missing."""
    path = root
    for part in ("", *parts):
        path = path / part
        check(path, os.lstat(path))


def entries_at(root: Path, key: str) -> Iterator[Path]:
    """Yield the files of a frame, the newest first. Raises Untrusted if others may have written them."""
    with contextlib.suppress(OSError):
        check_folders(root, FORMAT, "frames", key)
        yield from reversed(by_use(frames_in(root, key)))


def by_use(folder: Path) -> list[Path]:
    """Return the entries in a folder, the one used least lately first. Others may remove some meanwhile, or all."""
    found: list[tuple[float, str]] = []
    with contextlib.suppress(OSError), os.scandir(folder) as files:
        for each in files:
            with contextlib.suppress(OSError):
                if each.name.endswith(".td"):
                    found.append((each.stat(follow_symlinks=False).st_mtime, each.path))
    return [Path(path) for _, path in sorted(found)]

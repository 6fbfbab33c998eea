"""Keep for other processes why frames are not in the store, or why an entry did not serve: `cache why` tells them.

A note is a small file, for people only. There is one for each function and kind of reason, which the last process that
had a reason has written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import NamedTuple

from torchdynamo.bytecode.qualnames import lasting_name, qualname_of
from torchdynamo.cache.store import files, places
from torchdynamo.codegen import resume

NOT_STORED, LATER, NO_FIT = "not stored", "to be stored later", "a stored version does not fit"
LEFT = "left to Python, which is not stored"
KINDS = (NOT_STORED, LATER, NO_FIT, LEFT)
_written: dict[Path, str] = {}  # by this process


class Note(NamedTuple):
    """A reason that a process has left."""

    written: float  # seconds since the epoch
    line: int  # from which on the frame runs
    text: str


def keep(root: Path, code: CodeType, text: str) -> None:
    """Write a note on a frame. It is not missed where it cannot be written, which entries are told of."""
    users = resume.origin(code)
    path = path_of(root, users.code, text)
    if _written.get(path) == text:
        return
    about = {"qualified name": qualname_of(users.code), "file": users.code.co_filename, "line": users.line}
    with contextlib.suppress(OSError, places.Untrusted, ValueError):
        places.made_private(path.parent)
        files.write(path, json.dumps({**about, "text": text}).encode())
        _written[path] = text


def drop(root: Path, code: CodeType, kind: str) -> None:
    """Remove the note of a kind on a function."""
    path = path_of(root, resume.origin(code).code, kind)
    _written.pop(path, None)
    with contextlib.suppress(OSError):
        path.unlink()


def path_of(root: Path, code: CodeType, text: str) -> Path:
    """Return the file of a note on a function."""
    kind = next((each for each in KINDS if text.startswith(each)), "fault")
    name = "\0".join((code.co_filename, lasting_name(code), kind)).encode("utf-8", "replace")
    return places.notes_in(root) / f"{hashlib.blake2b(name, digest_size=16).hexdigest()}.json"


def notes_on(root: Path, code: CodeType) -> Iterator[Note]:
    """Yield what is noted on a function, the newest first."""
    found = []
    for text in (*KINDS, ""):
        path = path_of(root, code, text)
        with contextlib.suppress(OSError, places.Untrusted, ValueError, KeyError, TypeError):
            about = json.loads(places.contents(path))
            found.append(Note(path.stat().st_mtime, int(about["line"]), str(about["text"])))
    yield from sorted(found, reverse=True)

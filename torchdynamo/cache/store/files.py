"""The format of a file of the store: a mark, a digest of all that follows, and sections by name.

    8 bytes   "tdstore" and the number of the format
    32 bytes  blake2b of the rest
    u32       number of sections, then for each: name (8 bytes), offset, length (u32, from the beginning of the file)

Numbers are little endian. A file is read whole and compared with its digest before anything in it is looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import struct
from collections.abc import Mapping
from pathlib import Path

MAGIC = b"tdstore\x01"
_DIGEST = 32
_HEAD = len(MAGIC) + _DIGEST
_ROW = struct.Struct("<8sII")


class Damaged(Exception):
    """Raised for a file that is not what was written."""


def packed(sections: Mapping[str, bytes]) -> bytes:
    """Return the contents of a file of these sections."""
    at = _HEAD + 4 + _ROW.size * len(sections)
    rows = [struct.pack("<I", len(sections))]
    for name, content in sections.items():
        rows.append(_ROW.pack(name.encode(), at, len(content)))
        at += len(content)
    rest = b"".join([*rows, *sections.values()])
    return MAGIC + digest(rest) + rest


def digest(content: bytes) -> bytes:
    """Return the digest of bytes."""
    return hashlib.blake2b(content, digest_size=_DIGEST).digest()


def unpacked(data: bytes) -> dict[str, bytes]:
    """Return the sections of a file. Raises Damaged for one that is not as it was written, or of another format."""
    if data[: len(MAGIC)] != MAGIC:
        raise Damaged("it is no file of this format")
    if digest(data[_HEAD:]) != data[len(MAGIC) : _HEAD]:
        raise Damaged("its digest is another: it has been cut off or changed")
    (count,) = struct.unpack_from("<I", data, _HEAD)
    rows = (_ROW.unpack_from(data, _HEAD + 4 + _ROW.size * at) for at in range(count))
    return {name.rstrip(b"\0").decode(): data[at : at + length] for name, at, length in rows}


def write(path: Path, content: bytes) -> None:
    """Write a file at once, for all who look: under another name first. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise

"""Define what a backend's compiled graph is written as: plain data, and blobs of bytes, which it names by digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import torch.fx

Value: TypeAlias = Any
"""None, bool, int, float, str, bytes, and tuples, lists and dicts (with keys of str) of these."""


class BlobFile(NamedTuple):
    """A file that nobody but the user can write, and what is in it."""

    path: str
    content: bytes


ReadBlob: TypeAlias = Callable[[str], BlobFile]
"""Digest of a blob -> the file that was written for it."""
Captured: TypeAlias = Callable[[], torch.fx.GraphModule]
"""Returns the captured graph."""
Run: TypeAlias = Callable[[list[Any]], Any]
"""Code of a graph: takes the inputs in a list, and empties it."""


class Artifact(NamedTuple):
    """A compiled graph as data; `blobs` maps digests to contents."""

    data: dict[str, Value]
    blobs: dict[str, bytes]


class NotStored(NamedTuple):
    """The reason why a compiled graph cannot be written.

    later: it can be at another time (`when_ready`).
    """

    reason: str
    later: bool = False


class CannotStore(Exception):
    """Raised while a graph is written, with the reason why it cannot be."""

    later = False


class NotReady(CannotStore):
    """Raised for a graph that can be written later: once its backward has run, or once its compiler is chosen."""

    later = True


class BadArtifact(Exception):
    """Raised for data or a blob that is not what was written, or that was written for another process than this."""


class DamagedBlob(BadArtifact):
    """Raised for a blob of another digest: it is not what was written."""


def digest_of(content: bytes) -> str:
    """Return the name of a blob."""
    return hashlib.blake2b(content, digest_size=32).hexdigest()


def add_blob(blobs: dict[str, bytes], content: bytes) -> str:
    """Add a blob and return its digest."""
    name = digest_of(content)
    blobs[name] = content
    return name


def read_verified(name: str, read_blob: ReadBlob) -> BlobFile:
    """Return the file of a blob. Raises DamagedBlob for contents of another digest."""
    found = read_blob(name)
    if digest_of(found.content) != name:
        raise DamagedBlob(f"a blob is not what was written ({len(found.content)} bytes are left of it)")
    return found


def field(data: Mapping[str, Value], name: str, kind: type | tuple[type, ...]) -> Any:
    """Return a field of an artifact's data. Raises BadArtifact if it is missing or of another type."""
    value = data.get(name)
    if name not in data or not isinstance(value, kind):
        raise BadArtifact(f"the field {name!r} is missing or is a {type(value).__name__}")
    return value

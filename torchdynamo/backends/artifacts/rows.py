"""Write compiled graphs as artifacts and read them, each by the row of its backend in `kinds/`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, NamedTuple

from torchdynamo.backends.artifacts import kinds
from torchdynamo.backends.artifacts.artifact import (
    Artifact,
    BadArtifact,
    CannotStore,
    Captured,
    NotStored,
    ReadBlob,
    Value,
)

FORMAT = 1


class ArtifactKind(NamedTuple):
    """How compiled graphs of one backend are written and read.

    made_of: returns what `dump` needs to know of a callable, None for one that another backend made.
    dump: raises CannotStore with a reason.
    when_ready: calls a function once what could not be written can be; returns whether that is still to come.
    load: gets the data, a reader of blobs, and a function that returns the captured graph if it is asked.
    """

    made_of: Callable[[Any], Any]
    dump: Callable[[Any], Artifact]
    load: Callable[[dict[str, Value], ReadBlob, Captured | None], Callable[..., Any]]
    when_ready: Callable[[Any, Callable[[], object]], bool] = lambda made, call: False


def row_of(name: str) -> ArtifactKind:
    """Return the row of a name. Raises BadArtifact if there is none."""
    if name not in names():
        raise BadArtifact(f"there are no artifacts of a kind {name!r}")
    row: ArtifactKind = importlib.import_module(f"{kinds.__name__}.{name}").KIND
    return row


def names() -> list[str]:
    """Return the names of all rows."""
    return [module.name for module in pkgutil.iter_modules(kinds.__path__)]


def dump(compiled: Callable[..., Any]) -> Artifact | NotStored:
    """Write a compiled graph as data and blobs.

    compiled: what a backend has returned for a captured graph; its attribute `not_stored` is the reason if no row knows
    it.
    """
    for name in names():
        row = row_of(name)
        made = row.made_of(compiled)
        if made is None:
            continue
        try:
            artifact = row.dump(made)
        except CannotStore as refused:
            return NotStored(str(refused), refused.later)
        return Artifact({"kind": name, "format": FORMAT, **artifact.data}, artifact.blobs)
    return NotStored(getattr(compiled, "not_stored", "its backend cannot write what it compiles"))


def when_ready(compiled: Callable[..., Any], call: Callable[[], object]) -> bool:
    """Call a function when a compiled graph can be written that could not be: when its backward has run for the first
    time, and so has been compiled, or when one of several compilers has been chosen.

    Returns whether that is still to come; if not, `call` is never called.
    """
    for kind in map(row_of, names()):
        made = kind.made_of(compiled)
        if made is not None:
            return kind.when_ready(made, call)
    return False


def load(data: dict[str, Value], read_blob: ReadBlob, captured: Captured | None = None) -> Callable[..., Any]:
    """Return a callable that does what the compiled graph did that `dump` has written.

    The compiler is not imported, and no process is started.

    data: the artifact's data.
    read_blob: reads the file of a blob, whose owner it checks; the digest is checked here, before contents are used.
    captured: returns the captured graph, for derivatives of derivatives and for what eager is asked.

    Raises BadArtifact for what was not written by `dump`, or for a process that differs in what the graph rests on;
    what `read_blob` raises.
    """
    if data.get("format") != FORMAT:
        raise BadArtifact(f"the format is {data.get('format')!r}, and {FORMAT} is known")
    return row_of(str(data.get("kind"))).load(data, read_blob, captured)

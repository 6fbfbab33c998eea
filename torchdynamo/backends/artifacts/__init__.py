"""Compiled graphs as data and blobs, to be called in another process that imports no compiler and runs none.

    artifact = dump(compiled)                    # an Artifact, or NotStored with a reason
    run = load(artifact.data, read_blob)         # in another process: takes and returns what `compiled` does

A backend takes part by a file in `kinds/`. For those with AOTAutograd, `aot/noting.py` notes, at compile time, what
that is about to run; a kind adds the code inside. `operators.py` finds torch's operators by their names. `aten.py` has
graphs of ATen operators as data. For Inductor,
`inductor/wrapper_code.py` takes from the Python that Inductor wrote the functions which call kernels;
`inductor/namespace.py` is what their names mean in both processes; `inductor/kernels.py` loads kernels.
"""

from __future__ import annotations

from torchdynamo.backends.artifacts.artifact import (
    Artifact,
    BadArtifact,
    BlobFile,
    DamagedBlob,
    NotStored,
    ReadBlob,
    digest_of,
)
from torchdynamo.backends.artifacts.rows import dump, load, when_ready

__all__ = [
    "Artifact",
    "BadArtifact",
    "BlobFile",
    "DamagedBlob",
    "NotStored",
    "ReadBlob",
    "digest_of",
    "dump",
    "load",
    "when_ready",
]

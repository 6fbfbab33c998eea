"""Graphs compiled by Inductor for a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchdynamo.backends.artifacts.artifact import Artifact, CannotStore, ReadBlob, Value, field
from torchdynamo.backends.artifacts.inductor.code import decode_code, encode_code, graph_of
from torchdynamo.backends.artifacts.inductor.noting import Notes, notes_of
from torchdynamo.backends.artifacts.inductor.runtime import decode_runtime, encode_runtime
from torchdynamo.backends.artifacts.inductor.training import after_backward, decode_training, encode_training
from torchdynamo.backends.artifacts.inductor.values import check_structure, encode_structure, structured
from torchdynamo.backends.artifacts.rows import ArtifactKind, Captured


def dump(notes: Notes) -> Artifact:
    """Write a graph. Raises CannotStore with a reason."""
    if len(notes.wrapped) != 1:
        raise CannotStore(f"AOTAutograd has made {len(notes.wrapped)} callables for the graph")
    (wrapped,) = notes.wrapped
    if notes.owns_tensors:
        raise CannotStore("the graph owns parameters or buffers")
    if len(wrapped.metadata.input_info) != notes.inputs:
        raise CannotStore("inputs are passed that share memory, or one is passed twice")
    blobs: dict[str, bytes] = {}
    data: dict[str, Value] = {
        "inputs": notes.inputs,
        "structure": None if notes.structure is None else encode_structure(notes.structure),
        "trains": wrapped.trains,
    }
    if wrapped.trains:
        data["training"] = encode_training(notes, wrapped, blobs)
    else:
        data["forward"] = encode_code(graph_of(wrapped.run), blobs)
        data["runtime"] = encode_runtime(wrapped)
    return Artifact(data, blobs)


def load(data: dict[str, Value], read_blob: ReadBlob, captured: Captured | None) -> Callable[..., Any]:
    """Return a callable for a graph that `dump` has written. Raises BadArtifact."""
    structure = data["structure"]
    if structure is not None:
        check_structure(structure)
    if field(data, "trains", bool):
        graph: Callable[..., Any] = decode_training(
            field(data, "training", dict), field(data, "inputs", int), read_blob, captured
        )
        return graph if structure is None else lambda *args: structured(structure, iter(graph(*args)))
    run = decode_runtime(field(data, "runtime", dict), decode_code(field(data, "forward", dict), read_blob))
    if structure is None:
        return lambda *args: run(list(args))
    return lambda *args: structured(structure, iter(run(list(args))))


KIND = ArtifactKind(notes_of, dump, load, after_backward)

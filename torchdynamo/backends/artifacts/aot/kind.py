"""Make kinds of artifacts for backends with AOTAutograd, which differ in the code that it calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchdynamo.backends.artifacts.aot.noting import Notes, notes_of
from torchdynamo.backends.artifacts.aot.runtime import decode_runtime, encode_runtime
from torchdynamo.backends.artifacts.aot.training import after_backward, decode_training, encode_training
from torchdynamo.backends.artifacts.artifact import Artifact, CannotStore, Captured, ReadBlob, Run, Value, field
from torchdynamo.backends.artifacts.rows import ArtifactKind
from torchdynamo.backends.artifacts.values import check_structure, encode_structure, structured


def aot_kind(
    name: str,
    encode_code: Callable[[Any, dict[str, bytes]], Value],
    decode_code: Callable[[dict[str, Value], ReadBlob], Run],
    after_first_run: Callable[[Any, Callable[[], object]], bool] = lambda run, call: False,
) -> ArtifactKind:
    """Return a kind of artifacts.

    name: by which a backend keeps its notes. encode_code: returns what AOTAutograd calls as data, and adds blobs;
    raises CannotStore. decode_code: makes it from that; raises BadArtifact. after_first_run: calls a function when what
    AOTAutograd calls has run once; returns whether that is still to come.
    """

    def made_of(compiled: Any) -> Notes | None:
        notes = notes_of(compiled)
        return notes if notes is not None and notes.kind == name else None

    def dump(notes: Notes) -> Artifact:
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
            data["training"] = encode_training(notes, wrapped, lambda run: encode_code(run, blobs))
        else:
            data["forward"] = encode_code(wrapped.run, blobs)
            data["runtime"] = encode_runtime(wrapped)
        return Artifact(data, blobs)

    def load(data: dict[str, Value], read_blob: ReadBlob, captured: Captured | None) -> Callable[..., Any]:
        structure = data["structure"]
        if structure is not None:
            check_structure(structure)
        if field(data, "trains", bool):
            graph: Callable[..., Any] = decode_training(
                field(data, "training", dict),
                field(data, "inputs", int),
                lambda code: decode_code(code, read_blob),
                captured,
            )
            return graph if structure is None else lambda *args: structured(structure, iter(graph(*args)))
        run = decode_runtime(field(data, "runtime", dict), decode_code(field(data, "forward", dict), read_blob))
        if structure is None:
            return lambda *args: run(list(args))
        return lambda *args: structured(structure, iter(run(list(args))))

    def when_ready(notes: Notes, call: Callable[[], object]) -> bool:
        if len(notes.wrapped) != 1:
            return False
        (wrapped,) = notes.wrapped
        return after_backward(notes, call) if wrapped.trains else after_first_run(wrapped.run, call)

    return ArtifactKind(made_of, dump, load, when_ready)

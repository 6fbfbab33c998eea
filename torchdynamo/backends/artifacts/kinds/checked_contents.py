"""Graphs compiled by Inductor that take the contents of inputs for granted, such as a causal mask's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchdynamo.backends.artifacts.aot.noting import notes_of
from torchdynamo.backends.artifacts.artifact import (
    Artifact,
    BadArtifact,
    CannotStore,
    Captured,
    ReadBlob,
    Value,
    field,
)
from torchdynamo.backends.artifacts.kinds import inductor
from torchdynamo.backends.artifacts.rows import ArtifactKind
from torchdynamo.backends.artifacts.values import decode_tensor, encode_tensor
from torchdynamo.backends.checked_contents import Checked, CheckedContents, Index


def made_of(compiled: Any) -> Checked | None:
    """Return the callable, if it is of this kind."""
    return compiled if isinstance(compiled, Checked) and notes_of(compiled.run) is not None else None


def dump(checked: Checked) -> Artifact:
    """Write a graph with the contents that it rests on. Raises CannotStore."""
    notes = notes_of(checked.run)
    if notes is None or checked.contents.facts is not None:
        raise CannotStore("it rests on the contents of tensors on another device than a CPU")
    inner = inductor.KIND.dump(notes)
    blobs = dict(inner.blobs)
    regions: list[Value] = [
        [at, index, encode_tensor(known.detach(), blobs)] for at, index, known in checked.contents.regions
    ]
    return Artifact({"graph": inner.data, "regions": regions}, blobs)


def load(data: dict[str, Value], read_blob: ReadBlob, captured: Captured | None) -> Callable[..., Any]:
    """Return a callable for a graph that `dump` has written; where contents have changed it runs the captured graph.

    Raises BadArtifact.
    """
    if captured is None:
        raise BadArtifact("the captured graph is not there, which runs where contents have changed")
    run = inductor.KIND.load(field(data, "graph", dict), read_blob, captured)
    regions = [region(each, read_blob) for each in field(data, "regions", list)]
    return Checked(run, CheckedContents(regions, None), lambda _: captured().forward)


def region(data: Value, read_blob: ReadBlob) -> tuple[int, Index, torch.Tensor]:
    """Return one region of an input, with its contents. Raises BadArtifact."""
    try:
        at, index, tensor = data
        known = decode_tensor(tensor, read_blob)
    except (AttributeError, TypeError, ValueError, KeyError, RuntimeError) as error:
        raise BadArtifact(f"a region of an input is not what was written ({error})") from error
    return at, index, known


def after_backward(checked: Checked, call: Callable[[], object]) -> bool:
    """Call a function when the backward has run for the first time; return whether that is still to come."""
    return inductor.KIND.when_ready(notes_of(checked.run), call)


KIND = ArtifactKind(made_of, dump, load, after_backward)

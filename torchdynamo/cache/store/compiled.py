"""Write what a backend has made of a graph: by the backend's own row, or as the graph that runs as it was captured."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import torch.fx

from torchdynamo.backends import artifacts
from torchdynamo.backends.artifacts.values import DEVICES
from torchdynamo.cache.store.files import Damaged
from torchdynamo.cache.store.graphs import StoredGraph, plan_as_data, plan_of
from torchdynamo.cache.store.rows import Unresolved
from torchdynamo.cache.store.values import Malformed, NotStorable, NotYetStorable, decode, encode
from torchdynamo.codegen.checked_graph import CheckedGraph

AS_CAPTURED, CHECKED, ARTIFACT = "as captured", "as captured, with checks", "artifact"


def dump_compiled(made: Any, gm: torch.fx.GraphModule, backend: str) -> tuple[bytes, dict[str, bytes]]:
    """Return what a backend has made as bytes, and blobs by name. Raises NotStorable."""
    if getattr(made, "__code__", None) is gm.forward.__code__:
        if backend != "eager":
            raise NotStorable(f"backend {backend!r} left its graph to eager, which it may not do next time")
        return packed({"kind": AS_CAPTURED}), {}
    if isinstance(made, CheckedGraph):
        if backend != "eager":
            raise NotStorable("its graph rests on assertions, and is compiled in parts")
        return packed({"kind": CHECKED, "plan": plan_as_data(made.plan)}), {}
    return dump_artifact(made, backend)


def graphs_of(made: Any, gm: torch.fx.GraphModule) -> Iterator[torch.fx.GraphModule]:
    """Yield the graphs that are written for a graph: itself, and the stages in which it is run."""
    yield gm
    if isinstance(made, CheckedGraph):
        yield from (stage.module for stage in made.plan.stages)


def check_devices(gm: torch.fx.GraphModule) -> None:
    """Raise NotStorable for a graph on another device than a CPU or GPU, whose kernels cannot be written."""
    for node in gm.graph.find_nodes(op="placeholder"):
        example = node.meta.get("example_value")
        if isinstance(example, torch.Tensor) and example.device.type not in DEVICES:
            raise NotStorable(f"kernels run on {example.device.type}")


def dump_artifact(made: Any, backend: str) -> tuple[bytes, dict[str, bytes]]:
    """Return what a compiler has made as bytes, and blobs by name. Raises NotStorable."""
    found = artifacts.dump(made)
    if isinstance(found, artifacts.NotStored):
        refused = NotYetStorable if found.later else NotStorable
        raise refused(f"what backend {backend!r} has compiled cannot be written: {found.reason}")
    return packed({"kind": ARTIFACT, "data": found.data}), found.blobs


def load_compiled(
    data: bytes,
    graph: StoredGraph,
    read_blob: Callable[[str], artifacts.BlobFile],
    raised: Callable[[Exception], object],
) -> Callable[..., Any]:
    """Return what a backend has made. Raises Unresolved if this process differs in what that rests on, or if it is
    no data of a backend's, and Damaged for a blob that is not what was written.

    read_blob: reads the file of a blob, which can be trusted. raised: gets the error of a graph with assertions.
    """
    content = unpacked(data)
    if content["kind"] == AS_CAPTURED:
        forward: Callable[..., Any] = graph.module.forward
        return forward
    try:
        if content["kind"] == CHECKED:
            return CheckedGraph(plan_of(content["plan"], graph.named), lambda stage, examples: stage.forward, raised)
        return artifacts.load(content["data"], read_blob, lambda: graph.module)
    except artifacts.DamagedBlob as error:
        raise Damaged(str(error)) from None
    except artifacts.BadArtifact as error:
        raise Unresolved(f"what its backend has compiled does not fit: {error}") from None
    except FAULTS as error:
        raise Unresolved(f"what its backend has compiled cannot be read: {type(error).__name__}: {error}") from None


def is_as_captured(data: bytes) -> bool:
    """Return whether a graph runs as it was captured."""
    return unpacked(data)["kind"] in (AS_CAPTURED, CHECKED)


def packed(data: dict[str, Any]) -> bytes:
    """Return data of a backend as bytes: values, and lists, tuples and dicts of them."""
    return encode(_plain(data), _none)


def unpacked(data: bytes) -> dict[str, Any]:
    """Return data of a backend. Raises Malformed or struct.error."""
    content, end = decode(data, 0, _none_again)
    found = _made(content)
    if end != len(data) or type(found) is not dict:
        raise Malformed("this is no data of a backend")
    return found


def _plain(value: Any) -> Any:
    if type(value) is dict:
        return "dict", tuple((key, _plain(each)) for key, each in value.items())
    if type(value) in (list, tuple):
        return type(value).__name__, tuple(map(_plain, value))
    return "", value


def _made(content: Any) -> Any:
    kind, value = content
    if kind == "dict":
        return {key: _made(each) for key, each in value}
    if kind:
        return {"list": list, "tuple": tuple}[kind](map(_made, value))
    return value


def _none(obj: Any) -> tuple[bytes, int]:
    raise NotStorable(f"its backend has made a {type(obj).__name__}, which is no data")


def _none_again(tag: bytes, number: int) -> Any:
    raise Malformed("data of a backend refers to nothing else")


FAULTS = (Malformed, struct.error, ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError)
"""Errors that reading a damaged or foreign file may raise."""

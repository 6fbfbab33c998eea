"""Write tensors, views, and the structure of results as plain data, and read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchdynamo.backends.artifacts.artifact import (
    BadArtifact,
    CannotStore,
    ReadBlob,
    Value,
    add_blob,
    field,
    read_verified,
)

_functionalization: Any = torch._C._functionalization
LEAF = "*"
PLAIN = (bool, int, float, str)
NAMED = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}
MODE = "mode"
DEVICES = ("cpu", "cuda")
"""Types of devices whose kernels and constants can be written."""


def encode(value: Any) -> Value:
    """Return a number, a name of torch, or a sequence of these as data. Raises CannotStore for others."""
    if value is None or type(value) in PLAIN:
        return value
    if isinstance(value, (tuple, list)):
        return ["list", [encode(each) for each in value]]
    for kind, cls in NAMED.items():
        if isinstance(value, cls):
            return [kind, str(value).removeprefix("torch.")]
    if isinstance(value, _functionalization.InverseReturnMode):
        return [MODE, int(value)]
    raise CannotStore(f"a view is described by a {type(value).__name__}")


def decode(value: Value) -> Any:
    """Return what `encode` was given. Raises BadArtifact for what it did not write."""
    if value is None or type(value) in PLAIN:
        return value
    kind, content = value
    if kind == "list":
        return tuple(decode(each) for each in content)
    if kind == MODE:
        return _functionalization.InverseReturnMode(content)
    if kind in NAMED and isinstance(found := getattr(torch, content, None), NAMED[kind]):
        return found
    raise BadArtifact(f"{kind!r} is not known")


def encode_view(view: Any) -> Value:
    """Return one step of a recorded view as data. Raises CannotStore for sizes that vary."""
    return [type(view).__name__, encode(view.as_tuple())]


def decode_view(value: Value) -> Any:
    """Return what `encode_view` was given. Raises BadArtifact for a kind of view that does not exist here."""
    name, arguments = value
    cls = getattr(_functionalization, name, None)
    if not (isinstance(cls, type) and issubclass(cls, _functionalization.ViewMeta)):
        raise BadArtifact(f"there is no view {name!r} here")
    make: Callable[[Any], Any] = cls
    return make(decode(arguments))


def encode_tensor(tensor: Any, blobs: dict[str, bytes]) -> Value:
    """Return a constant of a graph as data; its memory becomes a blob. Raises CannotStore for all but plain tensors."""
    if type(tensor) is not torch.Tensor or tensor.device.type not in DEVICES or tensor.layout is not torch.strided:
        raise CannotStore(
            f"the graph has a constant of type {type(tensor).__name__} that is no plain tensor of a CPU or GPU"
        )
    if tensor.requires_grad or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized:
        raise CannotStore("the graph has a constant that needs a gradient or is no plain tensor")
    memory = tensor.detach().clone(memory_format=torch.preserve_format)
    storage = memory.untyped_storage().cpu()
    content = bytes(torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).numpy()) if storage.nbytes() else b""
    return {
        "memory": add_blob(blobs, content),
        "dtype": encode(memory.dtype),
        "sizes": list(memory.shape),
        "strides": list(memory.stride()),
        "device": str(memory.device),
    }


def decode_tensor(data: dict[str, Value], read_blob: ReadBlob) -> torch.Tensor:
    """Return a tensor with the contents that `encode_tensor` was given, in memory of its own."""
    _, content = read_verified(field(data, "memory", str), read_blob)
    memory = torch.UntypedStorage(0)
    if content:
        memory = torch.frombuffer(bytearray(content), dtype=torch.uint8).untyped_storage()
    made = torch.empty(0, dtype=decode(data["dtype"]), device="cpu")
    try:
        made = made.set_(memory, 0, field(data, "sizes", list), field(data, "strides", list))
        return made.to(field(data, "device", str))
    except (RuntimeError, TypeError) as error:
        raise BadArtifact(f"a constant does not fit its memory: {error}") from None


def encode_structure(spec: pytree.TreeSpec) -> Value:
    """Return the structure of a graph's results as data. Raises CannotStore but for tuples, lists and dicts."""
    if spec.is_leaf():
        return LEAF
    children = [encode_structure(child) for child in spec.children()]
    if spec.type in (tuple, list):
        return [spec.type.__name__, children]
    if spec.type is dict and all(isinstance(key, (str, int)) for key in spec.context):
        return ["dict", children, list(spec.context)]
    raise CannotStore(f"results are in a {spec.type.__name__}")


def check_structure(structure: Value) -> None:
    """Raise BadArtifact for what `encode_structure` did not make."""
    if structure == LEAF:
        return
    kind, children, *keys = structure if isinstance(structure, list) and len(structure) > 1 else ("", ())
    if kind not in ("tuple", "list", "dict") or not isinstance(children, list) or len(keys) != (kind == "dict"):
        raise BadArtifact("the structure of the results is none")
    for child in children:
        check_structure(child)


def structured(structure: Value, results: Iterator[Any]) -> Any:
    """Return results in the structure that they were captured in."""
    if structure == LEAF:
        return next(results)
    kind, children = structure[:2]
    made = [structured(child, results) for child in children]
    if kind == "dict":
        return dict(zip(structure[2], made, strict=True))
    return tuple(made) if kind == "tuple" else made

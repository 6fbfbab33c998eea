"""Write the inputs of a graph as data: what kind of tensors they are, and their contents or statistics of these.

Integers and booleans are kept as they are, because they may be indices. Of floats there are the mean, the standard
deviation, the smallest and the largest finite value, from which others of their kind are drawn.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import torch
import torch.fx

from torchdynamo.backends.ensemble.graph_data import GraphDecoder, GraphEncoder
from torchdynamo.errors import RecordError

_TENSORS = (torch.Tensor, torch.nn.Parameter)
_NUMBERS = (bool, int, float)
_encode, _decode = GraphEncoder({}), GraphDecoder()


def input_data(value: Any, node: torch.fx.Node, position: int, file: BinaryIO, data: bool) -> dict[str, Any]:
    """Return what JSON is to hold of an input; write contents to the file.

    node: the input's node. data: write floats, too. Raises RecordError for what is no tensor of an ordinary kind.
    """
    static = bool(node.meta.get("static_input"))
    if type(value) in _NUMBERS:
        return {"kind": "number", "value": _encode(value), "static": static}
    reason = _why_not(value, data)
    if reason is not None:
        raise RecordError(f"input {position} {reason}")
    found = {
        "kind": "parameter" if type(value) is torch.nn.Parameter else "tensor",
        "dtype": _encode(value.dtype),
        "size": list(value.shape),
        "stride": list(value.stride()),
        "device": value.device.type,
        "requires_grad": value.requires_grad,
        "inference": value.is_inference(),
        "static": static,
    }
    if value.is_floating_point() and not data:
        return {**found, "random": {"seed": position, **_statistics(value)}}
    return {**found, "contents": _written(value, file)}


def _why_not(value: Any, data: bool) -> str | None:
    if type(value) not in _TENSORS or torch._C._functorch.is_functorch_wrapped_tensor(value):
        return f"is of type {type(value).__name__}"
    if value.layout is not torch.strided or value.is_quantized or value.is_nested:
        return "is a sparse, quantized or nested tensor"
    if value.is_complex() and not data:
        return "is complex, which data=True records"
    return "overlaps with itself" if _overlaps(_unexpanded(value)) else None


def _overlaps(tensor: torch.Tensor) -> bool:
    """Return whether two elements may lie at one place of memory."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def _unexpanded(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of a tensor in which no place of memory comes twice because of a stride of 0."""
    return tensor.detach()[tuple(slice(0, 1) if not stride else slice(None) for stride in tensor.stride())]


def _statistics(tensor: torch.Tensor) -> dict[str, Any]:
    values = _unexpanded(tensor)
    finite = values[values.isfinite()].double()
    if not finite.numel():
        return {"mean": 0.0, "std": 0.0, "min": 0.0, "max": 0.0}
    std, mean = torch.std_mean(finite, correction=0)
    return {"mean": mean.item(), "std": std.item(), "min": finite.min().item(), "max": finite.max().item()}


def _written(tensor: torch.Tensor, file: BinaryIO) -> dict[str, int]:
    values = _unexpanded(tensor).resolve_conj().resolve_neg().cpu().contiguous()
    start, size = file.tell(), values.numel() * values.element_size()
    file.write(ctypes.string_at(values.data_ptr(), size) if size else b"")
    return {"offset": start, "bytes": size}


def input_of(data: Mapping[str, Any], contents: Callable[[int, int], bytes], values: bool) -> Any:
    """Return the input that data stands for.

    contents: (offset, number of bytes) -> what was written. values: fill tensors; without, their memory is not touched.
    Raises RecordError for a device that is not here, KeyError, ValueError, TypeError or RuntimeError for what is no
    such data.
    """
    if data["kind"] == "number":
        return _decode(data["value"])
    parameter = {"parameter": True, "tensor": False}[data["kind"]]
    if data["device"] == "cuda" and not torch.cuda.is_available():
        raise RecordError("the graph was captured on a GPU, and there is none here")
    with torch.inference_mode(data["inference"]), torch.no_grad():
        made = _layout(data)
        if values:
            target = _unexpanded(made)
            target.copy_(_random(data, target) if "random" in data else _read(data, target, contents))
    if parameter:
        return torch.nn.Parameter(made, data["requires_grad"])
    return made.requires_grad_(data["requires_grad"]) if not data["inference"] else made


def _layout(data: Mapping[str, Any]) -> torch.Tensor:
    facts = {"dtype": _decode(data["dtype"]), "device": torch.device(data["device"])}
    return torch.empty_strided([*map(int, data["size"])], [*map(int, data["stride"])], **facts)


def _random(data: Mapping[str, Any], like: torch.Tensor) -> torch.Tensor:
    facts = data["random"]
    generator = torch.Generator().manual_seed(int(facts["seed"]))
    drawn = torch.randn(like.shape, generator=generator, dtype=torch.float32)
    return drawn.mul_(float(facts["std"])).add_(float(facts["mean"])).clamp_(float(facts["min"]), float(facts["max"]))


def _read(data: Mapping[str, Any], like: torch.Tensor, contents: Callable[[int, int], bytes]) -> torch.Tensor:
    size = like.numel() * like.element_size()
    found = contents(int(data["contents"]["offset"]), size)
    if len(found) != size:
        raise ValueError(f"{len(found)} of {size} bytes are there")
    return torch.frombuffer(bytearray(found), dtype=like.dtype).reshape(like.shape) if size else torch.empty_like(like)

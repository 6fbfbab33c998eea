"""What a graph rests on of a tensor: class, dtype, device, layout, flags, sizes, strides."""

from __future__ import annotations

from typing import Any

from torchdynamo import _native
from torchdynamo.guards.kind import Kind, by_node

FIELDS = (
    "class",
    "dtype",
    "device",
    "device index",
    "layout",
    "requires_grad",
    "inference",
    "dispatch keys",
    "size",
    "stride",
)


def holds(value: Any, arg: Any, roots: Any) -> bool:
    try:
        return _native.tensor_meta(value) == arg
    except TypeError:
        return False


def tell(value: Any) -> str:
    try:
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} stride {value.stride()}"
    except Exception:  # whatever is there instead of a tensor
        return type(value).__qualname__


KIND = Kind("TENSOR_MATCH", holds=holds, lower=by_node("tensor"), tell=tell)

"""Guard a tensor's metadata: class, dtype, device, layout, flags, sizes, strides."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from torchdynamo import _native
from torchdynamo.core.source import Guard, Roots
from torchdynamo.guards.kind import GuardDifference, GuardKind, by_node, short


class TensorMeta(NamedTuple):
    """A tensor's metadata. None in `size` or `stride` matches any number; None instead of them is not compared."""

    cls: type
    dispatch_keys: int  # conjugate and negative bits, inference, quantization and dispatch in Python show here
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout
    requires_grad: bool
    size: tuple[int | None, ...] | None
    stride: tuple[int | None, ...] | None


def meta(tensor: Any) -> TensorMeta:
    """Return the current metadata of a tensor."""
    return TensorMeta._make(_native.tensor_meta(tensor))


def same_dims(wanted: tuple[int | None, ...] | None, found: tuple[int | None, ...] | None) -> bool:
    """Return whether sizes or strides are equal, where None matches any number."""
    if wanted is None or found is None:
        return wanted is None
    return len(wanted) == len(found) and all(a is None or a == b for a, b in zip(wanted, found, strict=True))


def differs(value: Any, arg: TensorMeta) -> str:
    """Return the name of the first field that differs; "" if none does."""
    if type(value) is not arg.cls:
        return "cls"
    found = meta(value)
    for name in ("dtype", "device", "layout", "requires_grad"):
        if getattr(found, name) != getattr(arg, name):
            return name
    for name in ("size", "stride"):
        if not same_dims(getattr(arg, name), getattr(found, name)):
            return name
    return "" if found.dispatch_keys == arg.dispatch_keys else "dispatch_keys"


def why(value: Any, arg: TensorMeta, roots: Roots) -> GuardDifference:
    name = differs(value, arg)
    if name == "cls":
        return GuardDifference("", f"a {short(arg.cls)}", f"a {short(type(value))}")
    old, new = getattr(arg, name), getattr(meta(value), name)
    if name == "dispatch_keys":
        return GuardDifference(".dispatch_keys", hex(old), hex(new))
    return GuardDifference(f".{name}()" if name in ("size", "stride") else f".{name}", str(old), str(new))


def settle(guard: Guard, roots: Roots) -> Guard:
    """Complete the guard with the tensor's metadata; the argument gives sizes and strides if some are dynamic."""
    if isinstance(guard.arg, TensorMeta):
        return guard
    now = meta(guard.source.load(roots))
    if guard.arg is None:
        return guard._replace(arg=now)
    size, stride = guard.arg
    return guard._replace(arg=now._replace(size=size, stride=stride))


KIND = GuardKind(
    "TENSOR_MATCH",
    holds=lambda value, arg, roots: not differs(value, arg),
    lower=by_node("tensor"),
    why=why,
    describe=lambda arg: f"{arg.dtype} {arg.device} {list(arg.size) if arg.size is not None else 'of any size'}",
    settle=settle,
    stored=TensorMeta._make,
)

"""Say what names in the Python code that Inductor writes stand for, and give them that meaning without Inductor.

The table is closed: code with a name that is not in it cannot be stored.
"""

from __future__ import annotations

import math
from cmath import nanj
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload, OpOverloadPacket

from torchdynamo import _native
from torchdynamo.backends.artifacts.artifact import BadArtifact
from torchdynamo.backends.artifacts.operators import binding_of, of_torch


class Name(NamedTuple):
    """A name of the code: the end of what Inductor binds it to, and what it stands for."""

    origin: str
    value: Any


NAMES: dict[str, Name] = {
    "torch": Name("torch", torch),
    "math": Name("math", math),
    "inf": Name("math.inf", math.inf),
    "nan": Name("math.nan", math.nan),
    "nanj": Name("cmath.nanj", nanj),
    "device": Name("torch.device", torch.device),
    "empty_strided": Name("torch.empty_strided", torch.empty_strided),
    "aten": Name("torch.ops.aten", torch.ops.aten),
    "inductor_ops": Name("torch.ops.inductor", torch.ops.inductor),
    "_quantized": Name("torch.ops._quantized", torch.ops._quantized),
    "alloc_from_pool": Name("torch.ops.inductor._alloc_from_pool", torch.ops.inductor._alloc_from_pool),
    "get_raw_stream": Name("torch._C._cuda_getCurrentRawStream", getattr(torch._C, "_cuda_getCurrentRawStream", None)),
    "empty_strided_cuda": Name(".guards._empty_strided_cuda", _native.empty_strided_cuda),
    "empty_strided_cpu": Name(".guards._empty_strided_cpu", _native.empty_strided_cpu),
    "reinterpret_tensor": Name(".guards._reinterpret_tensor", _native.reinterpret_tensor),
    "assert_size_stride": Name(".guards.assert_size_stride", _native.assert_size_stride),
    "assert_alignment": Name(".guards.assert_alignment", _native.assert_alignment),
}
EXTERNS = "extern_kernels"
OF_DEVICES = (["cuda", "_DeviceGuard"], ["cuda", "set_device"])  # functions of torch that choose a GPU
BUILTINS: dict[str, Any] = {
    each.__name__: each
    for each in (abs, bool, float, int, len, list, max, min, pow, range, round, slice, sum, tuple, zip)
    + (AssertionError, RuntimeError, ZeroDivisionError)
}
BUILTINS["__build_class__"] = __build_class__


def name_of_extern(kernel: Any) -> str | None:
    """Return the name under which `extern_named` finds an external kernel; None if it does not."""
    is_operator = isinstance(kernel, (OpOverload, OpOverloadPacket))
    name = str(kernel) if is_operator else str(getattr(kernel, "__name__", ""))
    try:
        return name if extern_named(name) is kernel else None
    except BadArtifact:
        return None


def extern_named(name: str) -> Callable[..., Any]:
    """Return the external kernel of a name: `aten.mm.out` is an operator, `mm` a function of torch in C++.

    Raises BadArtifact if there is none.
    """
    if "." in name:
        operator: Callable[..., Any] = of_torch(["ops", *name.split(".")])
        return operator
    function: Callable[..., Any] | None = binding_of(torch._C._VariableFunctions, name)
    if function is None:
        raise BadArtifact(f"there is no function torch.{name} here")
    return function


def namespace(externs: Mapping[str, str], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the globals in which the code of a graph runs.

    externs: names of external kernels in the code, with their names for `extern_named`. others: kernels and constants.
    Raises BadArtifact for an external kernel that is not here.
    """
    known = {name: each.value for name, each in NAMES.items()}
    kernels = SimpleNamespace(**{name: extern_named(real) for name, real in externs.items()})
    return {
        "__builtins__": BUILTINS,
        "__name__": "torchdynamo.artifact",
        EXTERNS: kernels,
        **known,
        **others,
    }

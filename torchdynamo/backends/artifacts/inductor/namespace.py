"""Say what names in the Python code that Inductor writes stand for, and give them that meaning without Inductor.

The table is closed: code with a name that is not in it cannot be stored.
"""

from __future__ import annotations

import math
from cmath import nanj
from collections.abc import Callable, Iterable, Mapping
from types import BuiltinFunctionType, SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload, OpOverloadPacket

from torchdynamo import _native
from torchdynamo.backends.artifacts.artifact import BadArtifact


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
    "empty_strided_cpu": Name(".guards._empty_strided_cpu", _native.empty_strided_cpu),
    "reinterpret_tensor": Name(".guards._reinterpret_tensor", _native.reinterpret_tensor),
    "assert_size_stride": Name(".guards.assert_size_stride", _native.assert_size_stride),
    "assert_alignment": Name(".guards.assert_alignment", _native.assert_alignment),
}
EXTERNS = "extern_kernels"
BUILTINS: dict[str, Any] = {
    each.__name__: each
    for each in (abs, bool, float, int, len, list, max, min, pow, range, round, slice, sum, tuple, zip)
    + (AssertionError, RuntimeError, ZeroDivisionError)
}
BUILTINS["__build_class__"] = __build_class__
# Namespaces of operators that torch's own libraries define in C++.
NATIVE_OPERATORS = frozenset("aten inductor mkl mkldnn mkldnn_prepacked onednn quantized _quantized".split())
OF_FILES = frozenset(["from_file"])  # operators that read files, which no graph of tensors is made of
CONSTANTS_OF_TORCH = (torch.dtype, torch.layout, torch.memory_format)


def of_torch(path: Iterable[str]) -> Any:
    """Return what `torch.<path>` is: an operator of torch's own, a dtype or the like. Raises BadArtifact for others."""
    parts = list(path)
    found: Any = torch
    if parts[:1] == ["ops"] and len(parts) in (3, 4) and parts[1] in NATIVE_OPERATORS and parts[2] not in OF_FILES:
        for part in parts:
            found = getattr(found, part, None)
        if isinstance(found, (OpOverload, OpOverloadPacket)):
            return found
    elif len(parts) == 1:
        found = getattr(torch, parts[0], None)
        if isinstance(found, CONSTANTS_OF_TORCH):
            return found
    raise BadArtifact(f"there is no operator torch.{'.'.join(parts)} here")


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
    found = getattr(torch._C._VariableFunctions, name, None)
    if name in OF_FILES or type(found) is not BuiltinFunctionType:
        raise BadArtifact(f"there is no function torch.{name} here")
    function: Callable[..., Any] = found
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

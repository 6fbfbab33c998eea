"""Find operators of torch's own by their names in stored data, which is closed to functions of the program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

from torchdynamo.backends.artifacts.artifact import BadArtifact
from torchdynamo.backends.bindings import BINDINGS

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


def binding_of(place: Any, name: str) -> Any:
    """Return the binding that is generated for an operator of torch's own, overloads and all; None if there is none."""
    found = getattr(place, name, None)
    is_operator = name not in OF_FILES and isinstance(getattr(torch.ops.aten, name, None), torch._ops.OpOverloadPacket)
    return found if is_operator and isinstance(found, BINDINGS) else None

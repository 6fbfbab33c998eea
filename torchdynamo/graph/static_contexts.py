"""Descriptions of inputs of constant sizes, as torch wants them for a tracer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torchdynamo.graph import wrappers
from torchdynamo.graph.torch_compat import TorchSource

if TYPE_CHECKING:
    from torch.fx.experimental.symbolic_shapes import StatefulSymbolicContext


def static_context(tensor: torch.Tensor, source: TorchSource) -> StatefulSymbolicContext:
    """Return torch's description of a tensor whose sizes are all constant, and of the tensors inside of a wrapper.

    The ragged size of a nested tensor is no number, and so no constant.
    """
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatefulSymbolicContext, SubclassSymbolicContext

    base = tensor._base
    dims = [DimDynamic.DYNAMIC if isinstance(size, torch.SymInt) else DimDynamic.STATIC for size in tensor.shape]
    given: dict[str, Any] = {
        "dynamic_sizes": dims,
        "dynamic_strides": [DimDynamic.INFER_STRIDE] * len(dims),
        "constraint_sizes": [None] * len(dims),
        "constraint_strides": [None] * len(dims),
        "view_base_context": None if base is None else static_context(base, source),
        "tensor_source": source,
        "shape_env_to_source_to_symbol_cache": {},
    }
    if not wrappers.is_wrapper(tensor):
        return StatefulSymbolicContext(**given)
    inner: dict[str, Any] = {
        name: static_context(part, source) if isinstance(part, torch.Tensor) else None
        for name, part in wrappers.parts(tensor)
    }
    if DimDynamic.DYNAMIC in dims and "track_outer_size_stride" in SubclassSymbolicContext.__dataclass_fields__:
        given["track_outer_size_stride"] = False  # the sizes of nested tensors are told by what is inside
    return SubclassSymbolicContext(**given, inner_contexts=inner)

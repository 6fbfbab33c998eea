"""Run a graph in float64, which tells how exact eager and each member are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

NARROW = frozenset({torch.float32, torch.float16, torch.bfloat16})
_CASTS = frozenset({"float", "half", "bfloat16"})
MOST_BYTES = 2 << 30  # of inputs: a copy in float64 takes twice or four times as much


class InFloat64(torch.fx.Interpreter):
    """Interprets a graph with every narrower floating-point tensor and dtype replaced by float64."""

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target in _CASTS and isinstance(args[0], torch.Tensor):
            return args[0].double()
        return super().call_method(target, *widened((args, kwargs)))

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super().call_function(target, *widened((args, kwargs)))

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return widened(super().get_attr(target, args, kwargs))


def widened(value: Any) -> Any:
    """Return nested values with tensors and dtypes of narrower floating-point types made float64."""
    return pytree.tree_map(_wide, value)


def _wide(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.dtype in NARROW:
        return leaf.detach().double()
    return torch.float64 if isinstance(leaf, torch.dtype) and leaf in NARROW else leaf


def in_float64(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> list[Any] | None:
    """Return the flat results of a graph computed in float64; None where an operator does not take float64.

    None, too, for inputs of more than `MOST_BYTES`.
    """
    if sum(each.numel() * each.element_size() for each in inputs if isinstance(each, torch.Tensor)) > MOST_BYTES:
        return None
    try:
        with torch.no_grad():
            result = InFloat64(gm).run(*widened(list(inputs)), enable_io_processing=False)
    except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError):
        return None
    return pytree.tree_leaves(result)

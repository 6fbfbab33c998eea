"""Classify operators: which may raise depending on the contents of their arguments, and which write to them."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

INTEGERS = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8})
# Names of operators and methods that raise for no values.
HARMLESS = frozenset(
    "add sub mul truediv neg abs lt le gt ge eq ne and_ or_ xor invert logical_and logical_or logical_not "
    "item tolist to type type_as float double half long int bool clone detach contiguous view reshape flatten "
    "unsqueeze squeeze expand expand_as transpose permute sum mean max min amax amin any all _is_all_true "
    "isnan isfinite isinf where masked_fill zeros_like ones_like full_like stack cat broadcast_tensors getattr".split()
)
# Names of operators that raise for some floats.
PARTICULAR = frozenset(
    "cholesky inverse pinverse svd logdet slogdet lu lstsq multinomial bernoulli normal poisson "
    "binary_cross_entropy _assert _assert_async floordiv mod".split()
)
# Names of operators that raise for tensors without elements, which fake ones do not tell.
OF_ELEMENTS = frozenset("max min argmax argmin".split())
# Functions on numbers that raise for none.
TAKE_ALL_NUMBERS = frozenset(
    (operator.add, operator.sub, operator.mul, operator.neg, operator.and_, operator.or_, operator.xor, abs)
    + (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, torch.sym_max, torch.sym_min)
)
IN_PLACE = frozenset(
    "iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift imatmul setitem".split()
)


def name_of(target: Any) -> str:
    """Return the name of an operator or method."""
    return target if isinstance(target, str) else str(getattr(target, "__name__", ""))


def takes_integers(node: torch.fx.Node) -> bool:
    """Return whether an operator takes integer tensors that may be indices."""
    if not node.op.startswith("call_") or name_of(node.target) in HARMLESS:
        return False
    examples = (each.meta["example_value"] for each in node.all_input_nodes)
    return any(isinstance(each, torch.Tensor) and each.dtype in INTEGERS for each in examples)


def may_raise(node: torch.fx.Node) -> bool:
    """Return whether only running it tells if an operator raises, mostly by the contents of its arguments."""
    name = name_of(node.target)
    if name in OF_ELEMENTS and any(is_empty(each.meta["example_value"]) for each in node.all_input_nodes):
        return True
    if name in PARTICULAR or name.startswith("linalg_") or takes_integers(node):
        return True
    return getattr(node.target, "__module__", None) == "torch.linalg"


def is_empty(example: Any) -> bool:
    """Return whether a tensor is known to have no elements."""
    return isinstance(example, torch.Tensor) and any(type(size) is int and size == 0 for size in example.shape)


def writes(node: torch.fx.Node) -> bool:
    """Return whether an operator writes to its arguments."""
    name = name_of(node.target)
    return name.endswith("_") or name in IN_PLACE or "out" in node.kwargs

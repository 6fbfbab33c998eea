"""Correct and speed up torch's rules for fake results of operators.

A rule handles the usual case and returns None for others, which torch's own rule then handles. A layout corrects the
strides that torch's rule gives: it may be composed of simpler operators that lay out their results differently. Each is
compared with eager in tests/graph/test_rules.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch._prims_common import suggest_memory_format

from torchdynamo.graph import shape_env, torch_compat
from torchdynamo.graph.wrappers import is_wrapper

aten = torch.ops.aten
Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}
LAYOUTS: dict[Any, Rule] = {}  # operator -> (torch's fake result, *arguments) -> that result with eager's strides


def rule(operator: Any) -> Callable[[Rule], Rule]:
    """Register a rule for an operator: a function of its fake arguments that returns its fake result, or None."""

    def register(fn: Rule) -> Rule:
        RULES[operator] = fn
        return fn

    return register


def layout(*operators: Any) -> Callable[[Rule], Rule]:
    """Register a function that gives results of these operators, which are new tensors, eager's strides."""

    def register(fn: Rule) -> Rule:
        LAYOUTS.update(dict.fromkeys(operators, fn))
        return fn

    return register


def is_known(given: Any) -> bool:
    """Return whether torch knows the contents of a fake result, being constant: it must not be replaced."""
    if isinstance(given, (tuple, list)):
        return any(map(is_known, given))
    return getattr(given, "constant", None) is not None


@rule(aten.native_batch_norm.default)
def batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor | None,
    var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Return dense results on the CPU; for views, torch's own rule gives other strides than eager."""
    for channels in (weight, bias, mean, var):
        if channels is not None and (channels.dtype != x.dtype or channels.shape != x.shape[1:2]):
            return None
    if is_known(x) or x.device.type != "cpu" or x.dim() < 2 or not (training or (mean is not None and var is not None)):
        return None
    kept = x.shape[1] if training else 0
    dense = torch.empty_like(x, memory_format=suggest_memory_format(x))
    return dense, x.new_empty(kept), x.new_empty(kept)


NOWHERE = torch.empty(0, device="meta")


@rule(aten.view.default)
@rule(aten._unsafe_view.default)
def view(x: torch.Tensor, size: Sequence[int]) -> torch.Tensor | None:
    """Compute a view by a tensor without memory; for sizes of 1, torch's own rule gives other strides than eager."""
    if x.layout is not torch.strided or not all(type(step) is int for step in x.stride()):
        return None
    try:
        seen = NOWHERE.as_strided(x.shape, x.stride()).view(size)
    except RuntimeError:
        return None
    return x.as_strided(seen.shape, seen.stride(), x.storage_offset())


# Operator whose rule specializes a number in some versions of torch -> function with equal metadata that does not.
ALIKE: dict[Any, Rule] = {aten.pow.Tensor_Scalar: torch.mul, aten.pow.Scalar: torch.mul}


@layout(
    *(aten.logical_and.default, aten.logical_or.default, aten.logical_xor.default),
    *(aten.floor_divide.default, aten.div.Tensor_mode, aten.copysign.Tensor, aten.heaviside.default),
    *(aten.logaddexp.default, aten.logaddexp2.default, aten.xlogy.Tensor, aten.special_xlog1py.default),
    aten.native_dropout_backward.default,
)
def elementwise(given: torch.Tensor, one: torch.Tensor, other: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """Give the result the strides of a sum: elementwise operators keep the order of their operands' dimensions."""
    return given.new_empty_strided(given.shape, torch.add(one, other).stride())


@layout(aten.ldexp.Tensor)
def scaled(given: torch.Tensor, x: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """Give `ldexp` the strides of a product with a contiguous exponent, because eager computes a power of two first."""
    return elementwise(given, x, in_order(exponent))


@layout(aten.pow.Scalar, aten.normal.float_Tensor, aten.normal.Tensor_Tensor)
def in_order(given: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """Make the result contiguous, whatever the operands are."""
    return torch.empty_like(given, memory_format=torch.contiguous_format)


@layout(aten.log_sigmoid_forward.default)
def both_in_order(given: tuple[torch.Tensor, torch.Tensor], *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Make a result and the tensor saved for its backward contiguous, on the CPU."""
    result, kept = given
    return (in_order(result), in_order(kept)) if result.device.type == "cpu" else given


@layout(aten.nll_loss_forward.default)
def of_labels(
    given: tuple[torch.Tensor, torch.Tensor], x: torch.Tensor, labels: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Refuse labels of a dtype that eager refuses: torch's own rule takes any."""
    return refusing(given, labels, torch.int64, torch.uint8)


@layout(aten.nll_loss2d_forward.default)
def of_images_of_labels(
    given: tuple[torch.Tensor, torch.Tensor], x: torch.Tensor, labels: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Lay out losses as `both_in_order`, and refuse labels of another dtype than int64."""
    return both_in_order(refusing(given, labels, torch.int64))


def refusing(
    given: tuple[torch.Tensor, torch.Tensor], labels: torch.Tensor, *dtypes: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return losses. Raises RuntimeError if labels on a CPU or GPU have none of the dtypes."""
    if labels.dtype not in dtypes and labels.device.type in ("cpu", "cuda"):
        raise RuntimeError(f"expected labels of {' or '.join(map(str, dtypes))}, but got {labels.dtype}")
    return given


@layout(aten.angle.default)
def angles(given: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Make the angles of complex numbers contiguous."""
    return in_order(given) if x.is_complex() else given


@layout(aten.multilabel_margin_loss_forward.default)
def of_one_row(given: tuple[torch.Tensor, torch.Tensor], x: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a 0-dim loss for a single row, whatever the reduction."""
    result, kept = given
    return (result.new_empty(()), kept) if x.dim() < 2 else given


@layout(
    *(aten.reflection_pad2d.default, aten.reflection_pad3d.default),
    *(aten.replication_pad2d.default, aten.replication_pad3d.default),
    *(aten.channel_shuffle.default, aten.native_channel_shuffle.default, aten.max_unpool2d.default),
)
def as_images(given: torch.Tensor, x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """Give the result the memory format of the first operand, channels first or last, on the CPU."""
    if given.device.type != "cpu":
        return given
    return torch.empty_like(given, memory_format=format_of(x))


@layout(
    *(aten.avg_pool2d.default, aten._adaptive_avg_pool2d.default, aten.constant_pad_nd.default),
    *(aten.pixel_shuffle.default, aten.pixel_unshuffle.default),
)
def as_images_that_vary(given: torch.Tensor, x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """Give a result with dynamic sizes the memory format of the first operand.

    Where a size may be 0, torch's own rules assume that all is contiguous.
    """
    return as_images(given, x) if shape_env.is_symbolic((*given.shape, *x.shape)) else given


@layout(aten.max_pool2d_with_indices.default)
def pooled(given: tuple[torch.Tensor, torch.Tensor], x: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, ...]:
    """Give a result with dynamic sizes and its indices the memory format of the first operand."""
    return tuple(as_images_that_vary(each, x) for each in given)


@layout(aten.cat.default)
def joined(given: torch.Tensor, parts: Sequence[torch.Tensor], *_: Any) -> torch.Tensor:
    """Give a concatenation with dynamic sizes channels last, if all of its parts have channels last."""
    formats = {format_of(each) for each in parts if shape_env.is_symbolic(tuple(given.shape))}
    return as_images(given, parts[0]) if formats == {torch.channels_last} else given


def format_of(x: torch.Tensor) -> torch.memory_format:
    """Return whether channels come first or last, judged by the current sizes."""
    shown = [
        [each if isinstance(each, int) else each.node.hint for each in numbers] for numbers in (x.shape, x.stride())
    ]
    if x.dim() not in (4, 5) or any(None in numbers for numbers in shown):
        return torch.contiguous_format
    size, stride = shown
    return suggest_memory_format(NOWHERE.as_strided(size, stride))


@layout(aten.binary_cross_entropy.default)
def losses(given: torch.Tensor, x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """Give unreduced losses the strides of the first operand."""
    return given if given.dim() < x.dim() else torch.empty_like(x, dtype=given.dtype)


def max_pool1d(
    x: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Pool with indices, whose rule accepts dynamic sizes.

    Without gradients, eager on a CPU takes a path with contiguous results.
    """
    steps = () if stride is None else stride
    fast = not (x.requires_grad and torch.is_grad_enabled()) and not torch_compat.in_transform()
    if not return_indices and not fast and not x.is_contiguous():  # torch's own rule has the strides right then
        return torch.max_pool1d(x, kernel_size, steps, padding, dilation, ceil_mode)
    found = torch.max_pool1d_with_indices(x, kernel_size, steps, padding, dilation, ceil_mode)
    if return_indices:
        return found
    laid_out = fast and x.device.type == "cpu" and not is_known(x)
    return x.new_empty(found[0].shape) if laid_out else found[0]


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Return what attention gives; over nested tensors on a CPU, which splits them by their lengths, its metadata."""
    if not (is_wrapper(query) and query.is_nested and query.device.type == "cpu"):
        return F.scaled_dot_product_attention(query, key, value, *args, **kwargs)
    heads: Any = query.transpose(1, 2)
    used = key.values().sum() + value.values().sum()  # so that gradients are wanted if one of them wants some
    width = value.values().shape[-1]
    result = (heads.values().sum(-1, keepdim=True) + used).repeat(1, 1, width)
    made: torch.Tensor = torch.nested.nested_tensor_from_jagged(result, heads.offsets(), heads.lengths())
    return made.transpose(1, 2)


# Function that decides in C++ by memory or sizes that a fake tensor does not have -> its replacement.
FUNCTIONS: dict[Any, Rule] = {
    F.max_pool1d: max_pool1d,
    torch.max_pool1d: max_pool1d,
    F.scaled_dot_product_attention: attend,
}

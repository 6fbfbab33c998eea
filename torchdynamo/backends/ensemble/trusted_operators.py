"""Name the operators that other runtimes are trusted with, and decline graphs that have others.

Trusted is what never raises by what tensors hold, or only by indices, which `integer_values` bounds, and what a runtime
has no other rule for than eager, as far as random inputs show. What differs in NaN and infinities is trusted, too:
validation finds that.
"""

from __future__ import annotations

import operator
from collections.abc import Set
from typing import Any

import torch
import torch.fx

from torchdynamo.backends.ensemble.integer_values import Integers, operator_name
from torchdynamo.backends.ensemble.member import Declined

_ELEMENTWISE = """
    add sub rsub mul div neg abs exp exp2 log log2 log10 log1p expm1 sqrt rsqrt reciprocal sin cos tan tanh sinh
    cosh asin acos atan sigmoid erf floor ceil round trunc sign square pow maximum minimum clamp clamp_min clamp_max
    where eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not
    bitwise_xor __and__ __or__ __xor__ isnan isinf isfinite masked_fill relu relu6 gelu silu elu selu celu
    leaky_relu prelu hardtanh hardswish hardsigmoid mish softplus softsign log_sigmoid glu lerp addcmul addcdiv
    threshold tanhshrink hardshrink softshrink floor_divide remainder
"""
_LAYERS = """
    linear addmm mm bmm matmul baddbmm einsum dot mv outer conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d convolution batch_norm layer_norm group_norm instance_norm rms_norm native_layer_norm
    native_group_norm native_batch_norm _native_batch_norm_legit_no_training softmax log_softmax _softmax
    _log_softmax _safe_softmax scaled_dot_product_attention dropout max_pool1d max_pool2d_with_indices max_pool2d
    max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d
    upsample_bicubic2d pixel_shuffle pixel_unshuffle lstm gru rnn_tanh rnn_relu
"""
_REDUCTIONS = """
    sum mean amax amin max min var std norm linalg_vector_norm logsumexp argmax argmin any all topk sort argsort
    cumsum
"""
_SHAPES = """
    view reshape unsqueeze squeeze slice select expand expand_as permute transpose t numpy_T mT movedim swapaxes
    flatten unflatten view_as contiguous clone alias detach detach_ lift_fresh_copy to _to_copy type_as copy cat
    stack split split_with_sizes chunk tensor_split unbind repeat roll flip narrow diagonal pad constant_pad_nd
    reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d tril triu broadcast_to meshgrid
    slice_scatter select_scatter _unsafe_view embedding gather index index_select index_put scatter scatter_add
"""
_CONSTANTS = """
    arange zeros ones full empty zeros_like ones_like full_like empty_like new_zeros new_ones new_full scalar_tensor
    eye linspace fill _assert_tensor_metadata
"""
TRUSTED = frozenset(f"{_ELEMENTWISE} {_LAYERS} {_REDUCTIONS} {_SHAPES} {_CONSTANTS}".split())
"""Names of ATen operators, without overloads."""
DTYPES = frozenset({torch.float32, torch.float64, torch.float16, torch.bool, torch.int64, torch.int32})
_DIVISIONS = frozenset({"floor_divide", "remainder"})
_CASTS = frozenset({"to", "_to_copy", "type_as"})


def must_be_trusted(
    program: Any, integers: Integers, *, dtypes: Set[torch.dtype] = DTYPES, without: Set[str] = frozenset()
) -> None:
    """Check every operator of an exported program.

    dtypes: what tensors may be of. without: operators that this runtime is not trusted with. Raises Declined.
    """
    for node in program.graph.nodes:
        _check_tensor(node, dtypes)
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        name = operator_name(node)
        if name not in TRUSTED or name in without:
            raise Declined(f"it is not trusted with {name or node.target}")
        example = node.meta.get("val")
        if not isinstance(example, torch.Tensor):
            continue
        whole = not example.is_floating_point() and example.dtype is not torch.bool
        if name in _DIVISIONS or (name == "div" and node.kwargs.get("rounding_mode")):
            _check_division(node, integers, whole)
        if whole and name == "pow":
            raise Declined("it raises integers to a power, which may not have an integer result")
        if whole and name in _CASTS and not integers.is_constant(node):
            source: Any = node.args[0]
            if source.meta["val"].is_floating_point():
                raise Declined("it turns floats into integers, which is undefined for large ones")


def _check_tensor(node: torch.fx.Node, dtypes: Set[torch.dtype]) -> None:
    example = node.meta.get("val")
    if not isinstance(example, torch.Tensor):
        return
    if example.dtype not in dtypes:
        raise Declined(f"it is not trusted with tensors of {example.dtype}")


def _check_division(node: torch.fx.Node, integers: Integers, whole: bool) -> None:
    if not whole:
        raise Declined("it divides floats and rounds, which runtimes do in another way")
    divisor = integers.of(node.args[1])
    if divisor is None or divisor.inputs or divisor.low <= 0 <= divisor.high:
        raise Declined("the graph divides integers by what may be zero")

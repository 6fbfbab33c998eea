"""Rewrite linear layers in float32 to oneDNN's kernel, which PyTorch contains and only uses for packed weights.

`F.linear` goes to MKL, which reaches half of oneDNN's speed on CPUs of other makers than Intel. Weights stay inputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.fx
import torch.nn.functional as F

FEWEST_ROWS = 8  # below this the kernel is slower than MKL's

Kernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]


def directly(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Compute `F.linear` by oneDNN."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


_library = torch.library.Library("torchdynamo", "DEF")
_library.define("onednn_linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
_library.impl("onednn_linear", directly, "CPU")


@torch.library.register_fake("torchdynamo::onednn_linear", lib=_library)  # type: ignore[untyped-decorator]
def _fake(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def opaquely(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Compute the same as an operator that Inductor calls as it is; its own lowering wants constant weights."""
    return torch.ops.torchdynamo.onednn_linear(x, weight, bias)


def rewrite(graph: torch.fx.Graph, kernel: Kernel) -> int:
    """Replace the linear layers that oneDNN computes as eager does; return how many were replaced."""
    found = 0
    for node in list(graph.nodes):
        operands = operands_of(node)
        if operands is None or not _is_taken(*operands):
            continue
        x, weight, bias = operands
        with graph.inserting_before(node):
            if node.target is torch.addmm:  # x @ w, and the kernel wants w transposed
                weight = graph.call_method("t", (weight,))
            made = graph.call_function(kernel, (x, weight, bias))
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        graph.erase_node(node)
        found += 1
    return found


def operands_of(node: torch.fx.Node) -> tuple[torch.fx.Node, torch.fx.Node, torch.fx.Node | None] | None:
    """Return (input, weight, bias) of `F.linear` or of an `addmm` without factors; None for other nodes."""
    if node.op != "call_function":
        return None
    if node.target in (F.linear, torch._C._nn.linear):
        bias = node.args[2] if len(node.args) > 2 else node.kwargs.get("bias")
        known = len(node.args) >= 2 and not set(node.kwargs) - {"bias"}
        return (node.args[0], node.args[1], bias) if known else None  # type: ignore[return-value]
    if node.target is torch.addmm and len(node.args) == 3 and not node.kwargs:
        bias, x, weight = node.args
        return x, weight, bias  # type: ignore[return-value]
    return None


def _is_taken(x: torch.fx.Node, weight: torch.fx.Node, bias: torch.fx.Node | None) -> bool:
    nodes = (x, weight) if bias is None else (x, weight, bias)
    examples = [each.meta.get("example_value") for each in nodes if isinstance(each, torch.fx.Node)]
    tensors = [each for each in examples if isinstance(each, torch.Tensor)]
    if len(tensors) != len(nodes):
        return False
    if any(each.dtype != torch.float32 or each.device.type != "cpu" for each in tensors):
        return False
    rows = tensors[0].numel() // max(tensors[0].shape[-1], 1) if tensors[0].dim() > 1 else 1
    plain = tensors[1].dim() == 2 and tensors[1].numel() > 0 and all(each.dim() == 1 for each in tensors[2:])
    return plain and rows >= FEWEST_ROWS

"""Cross entropy of a linear layer, computed in chunks of rows, with its gradients in the same pass.

Each chunk of logits is made in the memory of the one before, becomes its own gradient there, and is added to the
gradients of rows, weight and bias. So the forward does all products that forward and backward do as they are written,
and the backward only multiplies by the gradient of the loss, which is one number.

This is an operator of its own: a compiler that sees its parts may keep all chunks, and adds to the gradient of the
weight in new memory.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

BLOCK_ON_CPU = 16
"""Rows whose probabilities are computed at once, so that they stay in the caches of a CPU."""
ALIGNED = 64
"""Classes on a GPU, padded, are a multiple of that."""
SLICE_BYTES = 2**26
"""Size of the parts in which a product in half precision is added to the gradient of a weight in float32."""
Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


# Not by `custom_op` and `register_fake`, which read sources: 30 ms of each process that imports this.
_library = torch.library.Library("torchdynamo", "FRAGMENT")
_library.define(
    "chunked_loss(Tensor rows, Tensor weight, Tensor? bias, Tensor target, ScalarType dtype, int chunk, "
    "int ignore_index, float smoothing, bool is_mean, bool[] wanted) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def chunked_loss_and_gradients(
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    target: torch.Tensor,
    dtype: torch.dtype,
    chunk: int,
    ignore_index: int,
    smoothing: float,
    is_mean: bool,
    wanted: Sequence[bool],
) -> Results:
    """Return the loss, a factor, and the gradients over rows, weight and bias, to be multiplied by the factor.

    dtype: of the logits. chunk: rows whose logits are in memory at once. wanted: which gradients; the others are empty.
    """
    with torch.no_grad(), torch.autocast(rows.device.type, enabled=False):
        inputs, weight, classes = rows.to(dtype), weight.to(dtype), len(weight)
        bias = None if bias is None else bias.to(dtype)
        to_gradients: Any = blockwise
        if rows.is_cuda and dtype != torch.float64 and (kernel := row_kernel()) is not None:
            to_gradients = functools.partial(kernel.to_gradient, classes=classes)
            weight, bias = wider(weight), None if bias is None else wider(bias)
        loss, share, of_rows, of_weight, of_bias = outputs(rows, weight, bias, dtype, wanted)
        counted = target != ignore_index
        label = torch.where(counted, target, 0)
        logits = inputs.new_empty((min(chunk, len(rows)), len(weight)))
        total = torch.zeros_like(loss)
        for start in range(0, len(rows), chunk):
            at = slice(start, start + chunk)
            part, there = inputs[at], counted[at]
            of_logits = logits[: len(part)]
            torch.mm(part, weight.mT, out=of_logits)
            if bias is not None:
                of_logits += bias
            losses = to_gradients(of_logits, label[at], there, smoothing, keep=any(wanted))
            total += torch.where(there, losses, 0.0).sum()
            if wanted[0]:
                torch.mm(of_logits, weight, out=of_rows[at])
            if wanted[1]:
                add_product(of_weight, of_logits, part, is_first=start == 0)
            if wanted[2]:
                of_bias += of_logits.sum(0, dtype=of_bias.dtype)
        count = counted.sum().to(total.dtype)
        loss.copy_(total / count if is_mean else total)
        share.copy_(1.0 / count.clamp(min=1) if is_mean else torch.ones_like(total))
    return loss, share, of_rows, of_weight[:classes], of_bias[:classes]


def _like(
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    target: torch.Tensor,
    dtype: torch.dtype,
    chunk: int,
    ignore_index: int,
    smoothing: float,
    is_mean: bool,
    wanted: Sequence[bool],
) -> Results:
    return outputs(rows, weight, bias, dtype, wanted)


_library.impl("chunked_loss", chunked_loss_and_gradients, "CompositeExplicitAutograd")
_library.impl("chunked_loss", _like, "Meta")


def outputs(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype, wanted: Sequence[bool]
) -> Results:
    """Return memory for the results."""
    exact = sums_of(dtype)
    one, two, three = wanted
    return (
        rows.new_empty((), dtype=exact),
        rows.new_empty((), dtype=exact),
        rows.new_empty(rows.shape if one else (0,), dtype=dtype),
        rows.new_empty(weight.shape if two else (0,), dtype=exact),
        rows.new_zeros((len(weight),) if three else (0,), dtype=exact),
    )


@functools.cache
def row_kernel() -> Any:
    """Return the module with the kernel for GPUs, None where there is no Triton; importing that takes long."""
    if importlib.util.find_spec("triton") is None:
        return None
    return importlib.import_module("torchdynamo.graph.passes.losses.row_kernel")


def wider(weight: torch.Tensor) -> torch.Tensor:
    """Return a weight with rows of zeros behind it, so that logits begin at addresses that fast products ask for."""
    missing = -len(weight) % ALIGNED
    return functional.pad(weight, (*(0, 0) * (weight.dim() - 1), 0, missing)) if missing else weight


def blockwise(
    logits: torch.Tensor, label: torch.Tensor, counted: torch.Tensor, smoothing: float, *, keep: bool
) -> torch.Tensor:
    """Do what `to_gradient` does in small blocks of rows on a CPU, at once elsewhere."""
    step = BLOCK_ON_CPU if logits.device.type == "cpu" else max(len(logits), 1)
    parts = zip(logits.split(step), label.split(step), counted.split(step), strict=True)
    return torch.cat([to_gradient(*part, smoothing, keep=keep) for part in parts])


def to_gradient(
    logits: torch.Tensor, label: torch.Tensor, counted: torch.Tensor, smoothing: float, *, keep: bool
) -> torch.Tensor:
    """Return the losses of rows.

    keep: put their gradients in the place of the logits. counted: which rows have gradients other than zero.
    """
    size, exact = logits.shape[-1], sums_of(logits.dtype)
    at = label.unsqueeze(-1)
    logarithms = torch.log_softmax(logits, -1, dtype=exact)
    of_label = logarithms.gather(-1, at)
    losses = of_label.squeeze(-1) * (smoothing - 1.0)
    if smoothing:
        losses -= logarithms.mean(-1) * smoothing
    if keep:
        of_label = of_label.exp() - (1.0 - smoothing + smoothing / size)
        if smoothing:
            logits.copy_(logarithms.exp_().sub_(smoothing / size))
        else:
            torch.exp(logarithms, out=logits)
        logits.scatter_(-1, at, of_label.to(logits.dtype))
        logits *= counted.unsqueeze(-1)  # not a fill: what is NaN remains so, as in eager
    return losses


def sums_of(dtype: torch.dtype) -> torch.dtype:
    """Return in what numbers of a dtype are added up."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, is_first: bool) -> None:
    """Add the product of a transposed matrix and another to a total, which may have more precision than they.

    is_first: the total has no contents yet.
    """
    beta = 0 if is_first else 1
    if total.dtype == left.dtype:
        total.addmm_(left.mT, right, beta=beta)
    elif total.is_cuda:
        torch.addmm(total, left.mT, right, out_dtype=total.dtype, beta=beta, out=total)
    else:
        if is_first:
            total.zero_()
        step = max(1, SLICE_BYTES // (right.shape[-1] * right.element_size()))
        for start in range(0, len(total), step):
            at = slice(start, start + step)
            total[at] += left[:, at].mT @ right


class ChunkedLoss(torch.autograd.Function):
    """The loss of all rows, whose gradients the forward has computed."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        *rest: Any,
    ) -> torch.Tensor:
        """Return the loss, and keep its gradients for the backward."""
        loss, *saved = torch.ops.torchdynamo.chunked_loss(rows, weight, bias, *rest)
        ctx.save_for_backward(*saved)
        ctx.wanted = rest[-1]
        ctx.dtypes = (rows.dtype, weight.dtype, None if bias is None else bias.dtype)
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of the loss times that of its result."""
        share, *saved = ctx.saved_tensors
        factor = grads[0] * share
        found = [
            (each * factor).to(dtype) if wanted else None
            for each, wanted, dtype in zip(saved, ctx.wanted, ctx.dtypes, strict=True)
        ]
        return (*found, *[None] * 7)


def chunked_loss(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, target: torch.Tensor, *rest: Any
) -> torch.Tensor:
    """Return the cross entropy of a linear layer of `rows` against class indices, with `rest` as the operator's."""
    made: torch.Tensor = ChunkedLoss.apply(rows, weight, bias, target, *rest)
    return made

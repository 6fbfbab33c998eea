"""A kernel for GPUs that turns rows of logits into their gradients where they are, and gives the losses.

It reads a row twice, the second time from the cache, and writes it once; operators of PyTorch keep the logarithms of
all probabilities in float32 in between. Triton compiles it when it is first called.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK, WARPS = 16384, 16
"""Columns that are looked at together, and how many warps do that."""


@triton.jit  # type: ignore[untyped-decorator]
def _to_gradient(  # type: ignore[no-untyped-def]
    logits,
    label,
    counted,
    of_label,
    losses,
    columns,
    width,
    smoothing,
    is_smooth: tl.constexpr,
    keep: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    begin = logits + row * width
    columns_here = tl.arange(0, block)
    top, total, plain = -float("inf"), 0.0, 0.0
    for first in range(0, columns, block):
        at = first + columns_here
        x = tl.load(begin + at, mask=at < width).to(tl.float32)
        x = tl.where(at < columns, x, -float("inf"))
        if is_smooth:
            plain += tl.sum(tl.where(at < columns, x, 0.0), 0)
        now = tl.maximum(top, tl.max(x, 0))
        base = tl.where(now == -float("inf"), 0.0, now)  # so far, all classes are ruled out
        total = total * tl.exp(top - base) + tl.sum(tl.exp(x - base), 0)
        top = now
    rest = tl.log(total)  # not added to the largest, as that loses what is small beside it
    mine = tl.load(of_label + row).to(tl.float32)
    loss = (top - mine + rest) * (1.0 - smoothing)
    if is_smooth:
        loss += (top - plain / columns + rest) * smoothing
    tl.store(losses + row, loss)
    if keep:
        chosen = tl.load(label + row)
        factor = tl.load(counted + row).to(tl.float32)
        for first in range(0, width, block):
            at = first + columns_here
            x = tl.load(begin + at, mask=at < width).to(tl.float32)
            grad = tl.exp(x - top - rest) - tl.where(at == chosen, 1.0 - smoothing, 0.0) - smoothing / columns
            grad = tl.where(at < columns, grad * factor, 0.0)
            tl.store(begin + at, grad.to(logits.dtype.element_ty), mask=at < width)


def to_gradient(
    logits: torch.Tensor, label: torch.Tensor, counted: torch.Tensor, smoothing: float, *, classes: int, keep: bool
) -> torch.Tensor:
    """Return the losses of rows, in float32.

    logits: one row after the other, in bfloat16 or float32. keep: put their gradients in their place. counted: which
    rows have gradients other than zero. classes: how many logits count; what comes after gets gradients of zero.
    """
    rows, width = logits.shape
    losses = logits.new_empty((rows,), dtype=torch.float32)
    of_label = logits[:, :classes].gather(-1, label.unsqueeze(-1))  # which also checks the labels, as in eager
    with torch.cuda.device_of(logits):
        _to_gradient[(rows,)](
            *(logits, label, counted, of_label, losses, classes, width, smoothing),
            is_smooth=smoothing != 0.0,
            keep=keep,
            block=BLOCK,
            num_warps=WARPS,
        )
    return losses

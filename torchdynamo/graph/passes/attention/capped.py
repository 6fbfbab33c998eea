"""Attention whose scores go through a hyperbolic tangent, by `flex_attention`'s operator.

The operator is called as compilers call it: without one, it makes all scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

BLOCK = 128
WHOLE = 2**30  # a block that has everything
Mod = Callable[..., torch.Tensor]

_library = torch.library.Library("torchdynamo", "FRAGMENT")
_library.define("copied(Tensor values) -> Tensor")
_library.impl("copied", lambda values: values.clone(memory_format=torch.contiguous_format), "CompositeExplicitAutograd")
_library.impl("copied", lambda values: values.new_empty(values.shape), "Meta")


def capped_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    is_causal: bool,
    inner: float,
    outer: float,
) -> torch.Tensor:
    """Return attention whose scores are `outer * tanh(inner * score)`, with a boolean or an added mask."""
    kept = [] if mask is None else [dim for dim, size in enumerate(mask.shape) if size != 1]
    buffers = () if mask is None else (in_memory(mask.reshape([mask.shape[dim] for dim in kept])),)
    blocks = blocks_of(query, keys, is_causal).as_tuple()
    options = {"PRESCALE_QK": False, "ROWS_GUARANTEED_SAFE": False, "BLOCKS_ARE_CONTIGUOUS": False, "WRITE_DQ": True}
    tracks = torch.is_grad_enabled() and any(each.requires_grad for each in (query, keys, value))
    options |= {"OUTPUT_LOGSUMEXP": tracks, "OUTPUT_MAX": False}
    operator: Any = torch.ops.higher_order.flex_attention
    score = scoring(kept, outer)
    found = operator(query, keys, value, score, blocks, inner, options, buffers, ())
    made: torch.Tensor = found[0]
    return made


def in_memory(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask that Inductor computes before the kernel, into which it fails to fuse what the mask is made of."""
    made: torch.Tensor = mask if mask.requires_grad else torch.ops.torchdynamo.copied(mask)
    return made


def scoring(kept: list[int], outer: float) -> Mod:
    """Return what is done to a score. kept: dimensions of the mask that are more than 1."""

    def score_of(score: torch.Tensor, *at: torch.Tensor) -> torch.Tensor:
        indices, masks = at[:4], at[4:]
        score = torch.tanh(score) * outer
        for mask in masks:
            here = torch.ops.aten.index.Tensor(mask, [indices[dim] for dim in kept]) if kept else mask
            score = torch.where(here, score, -math.inf) if mask.dtype == torch.bool else score + here
        return score

    return score_of


def blocks_of(query: torch.Tensor, keys: torch.Tensor, is_causal: bool) -> BlockMask:
    """Return which blocks of scores are computed: all, or those that a causal mask leaves."""
    from torch.nn.attention.flex_attention import BlockMask

    rows, columns, device = query.shape[-2], keys.shape[-2], query.device
    if not is_causal:
        one = torch.ones(1, 1, 1, dtype=torch.int32, device=device)
        return BlockMask.from_kv_blocks(
            one, one.unsqueeze(-1) - 1, BLOCK_SIZE=WHOLE, mask_mod=keeps_all, seq_lengths=(rows, columns)
        )
    many, wide = -(-rows // BLOCK), -(-columns // BLOCK)
    row = torch.arange(many, dtype=torch.int32, device=device)
    column = torch.arange(wide, dtype=torch.int32, device=device)
    return BlockMask.from_kv_blocks(
        torch.ones_like(row).view(1, 1, -1),
        ((row.unsqueeze(-1) + column) % wide).view(1, 1, many, wide),  # the diagonal first
        row.view(1, 1, -1),
        column.expand(1, 1, many, wide).contiguous(),
        BLOCK_SIZE=BLOCK,
        mask_mod=keeps_lower,
        seq_lengths=(rows, columns),
    )


def keeps_all(batch: torch.Tensor, head: torch.Tensor, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    return row >= 0


def keeps_lower(batch: torch.Tensor, head: torch.Tensor, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    return row >= column

"""Rows of attention whose scores a low bias has absorbed: all keys have the same weight, and scores have gradients.

Adding -3e38 to a score gives -3e38, but its derivative is 1. So eager's result for such a row is the mean of all
values, while queries and keys get the gradients of a softmax at equal weights: with n keys, those of the scores are
P (dP - sum(P dP)) with P = 1 / n, which takes no matrix of scores.
"""

from __future__ import annotations

from typing import Any

import torch


class LevelRows(torch.autograd.Function):
    """Puts the mean of values in the place of some rows, with the gradients that a softmax has there."""

    @staticmethod
    def forward(
        ctx: Any,
        result: torch.Tensor,
        kept: torch.Tensor,
        query: torch.Tensor,
        keys: torch.Tensor,
        value: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        """Return `result` in rows that are kept, and the mean of all values elsewhere."""
        ctx.save_for_backward(kept, query, keys, value)
        ctx.scale = scale
        return torch.where(kept, result, value.mean(-2, True))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of result, queries, keys and values."""
        kept, query, keys, value = ctx.saved_tensors
        (grad,) = grads
        own, level = torch.where(kept, grad, 0.0), torch.where(kept, 0.0, grad)
        factor = 1.0 / value.shape[-2]
        apart = (value - value.mean(-2, True)) * (factor * ctx.scale)
        of_query = level @ (apart.mT @ keys)
        of_keys = apart @ (level.mT @ query)
        of_value = (level.sum(-2, True) * factor).expand_as(value)
        return own, None, of_query, of_keys, of_value, None


def level_rows(
    result: torch.Tensor,
    kept: torch.Tensor,
    query: torch.Tensor,
    keys: torch.Tensor,
    value: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Return attention with rows that are not kept replaced by the mean of values; see the file."""
    made: torch.Tensor = LevelRows.apply(result, kept, query, keys, value, scale)
    return made

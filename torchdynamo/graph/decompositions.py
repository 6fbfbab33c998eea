"""Replace torch's Python implementations that compute wrong results under a tracer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn import _reduction


def multilabel_margin_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> torch.Tensor:
    """Compute the loss with targets ending at the first -1; torch's reads the rest as class 0."""
    if size_average is not None or reduce is not None:
        reduction = _reduction.legacy_get_string(size_average, reduce)
    return by_pairs(input, target, _reduction.get_enum(reduction))


def by_pairs(input: torch.Tensor, target: torch.Tensor, reduction: int = 1) -> torch.Tensor:
    """Sum the margins over all pairs of a target class and another class."""
    x, y = torch.atleast_2d(input), torch.atleast_2d(target)
    there = (y == -1).cumsum(1) == 0
    index = torch.where(there, y, 0)
    meant = ((index.unsqueeze(2) == torch.arange(x.shape[1], device=x.device)) & there.unsqueeze(2)).any(1)
    pairs = torch.relu(1 - x.gather(1, index).unsqueeze(2) + x.unsqueeze(1))
    rows = torch.where(there.unsqueeze(2) & ~meant.unsqueeze(1), pairs, 0).sum((1, 2)) / x.shape[1]
    if reduction == 0:
        return rows.reshape(input.shape[:-1])
    return rows.mean() if reduction == 1 else rows.sum()


CORRECTED: dict[Any, Callable[..., torch.Tensor]] = {
    F.multilabel_margin_loss: multilabel_margin_loss,
    torch._C._nn.multilabel_margin_loss: by_pairs,
}

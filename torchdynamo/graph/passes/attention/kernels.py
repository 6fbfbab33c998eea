"""Choose among the kernels of `scaled_dot_product_attention`, while AOTAutograd traces a rewritten graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.backends import cuda


def masked_gradients(*heads: torch.Tensor, **options: Any) -> torch.Tensor:
    """Return attention with a mask, as `scaled_dot_product_attention`, by a kernel that has its gradients.

    cuDNN's are wrong for some masks, and NaN for some lengths. Its results are right.
    """
    attend: Any = F.scaled_dot_product_attention
    with without_cudnn():
        made: torch.Tensor = attend(*heads, **options)
    return made


@contextlib.contextmanager
def without_cudnn() -> Iterator[None]:
    """Leave cuDNN's kernel out inside of the block, unless the program allows no other."""
    before = cuda.cudnn_sdp_enabled()
    others = cuda.flash_sdp_enabled() or cuda.mem_efficient_sdp_enabled() or cuda.math_sdp_enabled()
    cuda.enable_cudnn_sdp(before and not others)
    try:
        yield
    finally:
        cuda.enable_cudnn_sdp(before)

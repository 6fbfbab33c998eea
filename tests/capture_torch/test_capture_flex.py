"""flex_attention: functions of scores and of masks are bodies of one operator."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils import _pytree as pytree

import torchdynamo

DOCUMENT = torch.tensor([0] * 5 + [1] * 11)
SLOPES = torch.tensor([0.5, 0.25])
LEARNED = torch.tensor([0.1, -0.2], requires_grad=True)
INFINITY = float("inf")


def same_document(b: Any, h: Any, i: Any, j: Any) -> Any:
    return (i >= j) & (DOCUMENT[i] == DOCUMENT[j])


BLOCKS = create_block_mask(same_document, None, None, 16, 16, device="cpu")

CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "plain": lambda q: flex_attention(q, q, q),
    "relative": lambda q: flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + (i - j)) * 2,
    "indexed": lambda q: flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + SLOPES[h] * (j - i)),
    "learned": lambda q: flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + LEARNED[h]),
    "causal": lambda q: flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: torch.where(i >= j, s, -INFINITY)),
    "masked": lambda q: flex_attention(q, q.sin(), q.cos(), block_mask=BLOCKS),
    "capped": lambda q: flex_attention(
        q, q, q, score_mod=lambda s, b, h, i, j: 20 * torch.tanh(s / 20), scale=0.3, return_lse=True
    ),
    "grouped": lambda q: flex_attention(q, q[:, :1], q[:, :1], block_mask=BLOCKS, enable_gqa=True),
    "made_inside": lambda q: flex_attention(
        q, q, q, block_mask=create_block_mask(same_document, None, None, 16, 16, device="cpu")
    ),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CASES)
def test_whole_and_equal(name: str, backend: str) -> None:
    fn = CASES[name]
    fast = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    for seed in (0, 1):
        torch.manual_seed(seed)
        q = torch.randn(2, 2, 16, 16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it was not compiled
            want = fn(q)
        got = fast(q)
        for a, b in zip(pytree.tree_leaves(want), pytree.tree_leaves(got), strict=True):
            assert torch.equal(a, b)


@pytest.mark.long
def test_inductor_has_a_kernel_for_it() -> None:
    q = torch.randn(2, 2, 16, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = CASES["masked"](q)
    got = torchdynamo.compile(CASES["masked"], backend="inductor", fullgraph=True)(q)
    torch.testing.assert_close(got, want)

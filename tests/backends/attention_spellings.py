"""Ways in which programs write attention. Each takes queries, keys and values of (batch, heads, length, size)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

F = nn.functional
BATCH, HEADS, LENGTH, SIZE = 2, 4, 16, 16
INF = float("inf")
PADDING = torch.arange(LENGTH) < torch.tensor([[LENGTH], [LENGTH - 5]])  # (batch, keys): True for a key that is there
CAUSAL = torch.ones(LENGTH, LENGTH).tril()
ALIBI = -(2.0 ** -torch.arange(1, HEADS + 1)).view(1, HEADS, 1, 1) * torch.arange(LENGTH).flip(0).float()
RELATIVE = torch.randn(1, HEADS, LENGTH, LENGTH, generator=torch.Generator().manual_seed(1))
SCALE = 1 / math.sqrt(SIZE)
Write = Callable[[Any, Any, Any], Any]


class Spelling(NamedTuple):
    """A spelling, whether it has one operator, and of what shapes and dtype its inputs are."""

    write: Write
    inference: bool = True
    training: bool = True
    shapes: tuple[tuple[int, ...], ...] = ((BATCH, HEADS, LENGTH, SIZE),) * 3
    dtype: torch.dtype = torch.float32


SPELLINGS: dict[str, Spelling] = {}
FLAT = ((BATCH * HEADS, LENGTH, SIZE),) * 3
GROUPED = ((BATCH, HEADS, LENGTH, SIZE), (BATCH, 2, LENGTH, SIZE), (BATCH, 2, LENGTH, SIZE))
LAST = ((BATCH, LENGTH, HEADS, SIZE),) * 3  # heads behind the length
SHORT = ((BATCH, HEADS, 3, SIZE), (BATCH, HEADS, LENGTH, SIZE), (BATCH, HEADS, LENGTH, SIZE))


def spelling(name: str, **facts: Any) -> Callable[[Write], Write]:
    def add(write: Write) -> Write:
        SPELLINGS[name] = Spelling(write, **facts)
        return write

    return add


@spelling("scores over a root")
def _(q: Any, k: Any, v: Any) -> Any:
    return F.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1) @ v


@spelling("scores times a constant")
def _(q: Any, k: Any, v: Any) -> Any:
    return torch.matmul((torch.matmul(q, k.mT) * SCALE).softmax(-1), v)


@spelling("queries scaled first")
def _(q: Any, k: Any, v: Any) -> Any:
    q = q * SCALE
    return torch.softmax(q @ k.transpose(2, 3), -1) @ v


@spelling("queries and keys scaled")
def _(q: Any, k: Any, v: Any) -> Any:
    root = SIZE**-0.25
    return ((q * root) @ (k * root).transpose(-1, -2)).softmax(dim=-1).matmul(v)


@spelling("nanoGPT's")
def _(q: Any, k: Any, v: Any) -> Any:
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = att.masked_fill(CAUSAL.to(q.device).view(1, 1, LENGTH, LENGTH)[:, :, :LENGTH, :LENGTH] == 0, float("-inf"))
    att = F.dropout(F.softmax(att, dim=-1), 0.1, False)
    return (att @ v).transpose(1, 2).contiguous().view(BATCH, LENGTH, HEADS * SIZE)


@spelling("a causal mask made of a triangle")
def _(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.transpose(-2, -1) * SCALE
    return (scores + torch.full((LENGTH, LENGTH), -INF, device=q.device, dtype=q.dtype).triu(1)).softmax(-1) @ v


@spelling("a causal mask made of positions")
def _(q: Any, k: Any, v: Any) -> Any:
    at = torch.arange(LENGTH, device=q.device)
    scores = torch.where(at[:, None] >= at[None, :], q @ k.mT * SCALE, torch.finfo(q.dtype).min)
    return scores.softmax(-1) @ v


@spelling("a window made of positions")
def _(q: Any, k: Any, v: Any) -> Any:
    at = torch.arange(LENGTH, device=q.device)
    away = at[:, None] - at[None, :]
    return (q @ k.mT * SCALE).masked_fill(~((away >= 0) & (away < 5)), -INF).softmax(-1) @ v


@spelling("documents")
def _(q: Any, k: Any, v: Any) -> Any:
    document = torch.arange(LENGTH, device=q.device) // 6
    return (q @ k.mT * SCALE).masked_fill(document[:, None] != document[None, :], -1e9).softmax(-1) @ v


@spelling("a padding mask, filled in")
def _(q: Any, k: Any, v: Any) -> Any:
    scores = (q @ k.mT / 4).masked_fill(~PADDING.to(q.device)[:, None, None, :], float("-inf"))
    return scores.softmax(-1) @ v


@spelling("a padding mask, -1e9")
def _(q: Any, k: Any, v: Any) -> Any:
    mask = PADDING.to(q.device).long()
    scores = (q @ k.mT / 4).masked_fill(mask.unsqueeze(1).unsqueeze(2) == 0, -1e9)
    return F.softmax(scores, -1) @ v


@spelling("a padding mask, added")
def _(q: Any, k: Any, v: Any) -> Any:
    extended = (1.0 - PADDING.to(q.device)[:, None, None, :].to(q.dtype)) * torch.finfo(q.dtype).min
    return F.softmax(q @ k.mT / 4 + extended, -1) @ v


@spelling("a padding mask, subtracted")
def _(q: Any, k: Any, v: Any) -> Any:
    return F.softmax(q @ k.mT / 4 - (1.0 - PADDING.to(q)[:, None, None, :]) * 1e9, -1) @ v


@spelling("padding and a triangle")
def _(q: Any, k: Any, v: Any) -> Any:
    mask = CAUSAL.to(q.device).bool() & PADDING.to(q.device)[:, None, None, :]
    return torch.where(mask, q @ k.mT * SCALE, torch.tensor(-INF)).softmax(-1) @ v


@spelling("two masks")
def _(q: Any, k: Any, v: Any) -> Any:
    scores = (q @ k.mT * SCALE).masked_fill(CAUSAL.to(q.device) == 0, -INF)
    return scores.masked_fill(~PADDING.to(q.device)[:, None, None, :], -INF).softmax(-1) @ v


@spelling("where, the other way")
def _(q: Any, k: Any, v: Any) -> Any:
    return torch.where(~PADDING.to(q.device)[:, None, None, :], -INF, q @ k.mT * SCALE).softmax(-1) @ v


@spelling("ALiBi")
def _(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT * SCALE + ALIBI.to(q)
    return scores.masked_fill(CAUSAL.to(q.device) == 0, -INF).softmax(-1) @ v


@spelling("a bias before the scale", training=False)
def _(q: Any, k: Any, v: Any) -> Any:
    return ((q @ k.mT + RELATIVE.to(q)) * 0.5).softmax(-1) @ v


@spelling("in place")
def _(q: Any, k: Any, v: Any) -> Any:
    scores = torch.matmul(q, k.transpose(3, 2))
    scores /= 4
    scores += RELATIVE.to(q)
    scores.masked_fill_(CAUSAL.to(q.device) == 0, -INF)
    return F.softmax(scores, dim=-1) @ v


@spelling("baddbmm", shapes=FLAT)
def _(q: Any, k: Any, v: Any) -> Any:
    alibi = ALIBI.to(q).expand(BATCH, -1, -1, -1).reshape(BATCH * HEADS, 1, LENGTH)
    scores = alibi.baddbmm(q, k.transpose(1, 2), beta=1.0, alpha=SCALE).view(BATCH, HEADS, LENGTH, LENGTH)
    weights = F.softmax(scores.masked_fill(CAUSAL.to(q.device) == 0, torch.finfo(q.dtype).min), dim=-1)
    return torch.bmm(weights.view(BATCH * HEADS, LENGTH, LENGTH), v)


@spelling("three dimensions", shapes=FLAT)
def _(q: Any, k: Any, v: Any) -> Any:
    return torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) * SCALE, dim=2), v)


@spelling("one head", shapes=((LENGTH, SIZE),) * 3)
def _(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.T / 4).softmax(1) @ v


@spelling("einsum, heads first")
def _(q: Any, k: Any, v: Any) -> Any:
    weights = torch.einsum("bhid,bhjd->bhij", q, k).mul(SCALE).softmax(-1)
    return torch.einsum("bhij,bhjd->bhid", weights, v)


@spelling("einsum, heads last", shapes=LAST)
def _(q: Any, k: Any, v: Any) -> Any:
    scores = torch.einsum("blhe,bshe->bhls", q, k)
    return torch.einsum("bhls,bshd->blhd", torch.softmax(SCALE * scores, dim=-1), v).contiguous()


@spelling("einsum with dots", shapes=FLAT)
def _(q: Any, k: Any, v: Any) -> Any:
    return torch.einsum("...ij,...jd->...id", torch.einsum("...id,...jd->...ij", q, k).div(4).softmax(-1), v)


@spelling("heads repeated", shapes=GROUPED)
def _(q: Any, k: Any, v: Any) -> Any:
    k, v = (each.repeat_interleave(2, dim=1) for each in (k, v))
    return (q @ k.mT * SCALE).softmax(-1) @ v


@spelling("heads expanded", shapes=GROUPED)
def _(q: Any, k: Any, v: Any) -> Any:
    k, v = (each[:, :, None].expand(-1, -1, 2, -1, -1).reshape(BATCH, HEADS, LENGTH, SIZE) for each in (k, v))
    return (q @ k.mT * SCALE).softmax(-1) @ v


@spelling("heads in groups", shapes=GROUPED)
def _(q: Any, k: Any, v: Any) -> Any:
    q = q.view(BATCH, 2, 2, LENGTH, SIZE)
    out = (q @ k.unsqueeze(2).mT * SCALE).softmax(-1) @ v.unsqueeze(2)
    return out.reshape(BATCH, HEADS, LENGTH, SIZE)


@spelling("one head of keys", shapes=((BATCH, HEADS, LENGTH, SIZE), *((BATCH, LENGTH, SIZE),) * 2))
def _(q: Any, k: Any, v: Any) -> Any:
    return torch.einsum("bhij,bjd->bhid", torch.einsum("bhid,bjd->bhij", q, k).mul(SCALE).softmax(-1), v)


@spelling("a softmax in float32", dtype=torch.bfloat16)
def _(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT * SCALE + torch.full(
        (LENGTH, LENGTH), torch.finfo(q.dtype).min, dtype=q.dtype, device=q.device
    ).triu(1)
    return F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype) @ v


@spelling("scores in float32", dtype=torch.bfloat16)
def _(q: Any, k: Any, v: Any) -> Any:
    scores = (q @ k.mT).float() * SCALE
    return scores.masked_fill(~PADDING.to(q.device)[:, None, None, :], -1e4).softmax(-1).type_as(v) @ v


@spelling("queries and keys in float32", dtype=torch.bfloat16)
def _(q: Any, k: Any, v: Any) -> Any:
    return (q.float() * SCALE @ k.float().transpose(-1, -2)).softmax(-1).to(v.dtype) @ v


@spelling("a softmax by hand")
def _(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT * SCALE
    weights = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return weights / weights.sum(dim=-1, keepdim=True) @ v


@spelling("a softmax by amax")
def _(q: Any, k: Any, v: Any) -> Any:
    scores = (q @ k.mT * SCALE).masked_fill(CAUSAL.to(q.device) == 0, -1e9)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return (weights / weights.sum(-1, keepdim=True)) @ v


@spelling("a softmax by logarithms")
def _(q: Any, k: Any, v: Any) -> Any:
    return F.log_softmax(q @ k.mT * SCALE, -1).exp() @ v


@spelling("weights masked afterwards")
def _(q: Any, k: Any, v: Any) -> Any:
    mask = ~PADDING.to(q.device)[:, None, None, :]
    return (q @ k.mT * SCALE).masked_fill(mask, -1e9).softmax(-1).masked_fill(mask, 0.0) @ v


@spelling("fewer queries than keys", shapes=SHORT)
def _(q: Any, k: Any, v: Any) -> Any:
    at = torch.arange(LENGTH, device=q.device)
    mask = at[None, :] <= at[-3:, None]
    return (q @ k.mT * SCALE).masked_fill(~mask, -INF).softmax(-1) @ v


@spelling("one query", shapes=((BATCH, HEADS, 1, SIZE), *((BATCH, HEADS, LENGTH, SIZE),) * 2))
def _(q: Any, k: Any, v: Any) -> Any:
    mask = CAUSAL.to(q.device)[-1:] == 0
    return (q @ k.mT * SCALE).masked_fill(mask, -INF).softmax(-1) @ v


@spelling("a temperature per head")
def _(q: Any, k: Any, v: Any) -> Any:
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    temperature = torch.linspace(1, 4, HEADS, device=q.device, dtype=q.dtype).view(HEADS, 1, 1)
    return (q @ k.transpose(-2, -1) * temperature).softmax(dim=-1) @ v


@spelling("windows with a bias and a mask", training=False, shapes=((BATCH * 2, HEADS, LENGTH, SIZE),) * 3)
def _(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.transpose(-2, -1) * SCALE + RELATIVE.to(q)
    mask = torch.stack([CAUSAL.to(q), torch.ones(LENGTH, LENGTH).to(q)]).sub(1) * 100000.0
    scores = scores.view(BATCH, 2, HEADS, LENGTH, LENGTH) + mask.unsqueeze(1).unsqueeze(0)
    return scores.view(-1, HEADS, LENGTH, LENGTH).softmax(-1) @ v


@spelling("a cap on scores", inference=False, training=False)
def _(q: Any, k: Any, v: Any) -> Any:
    return (torch.tanh(q @ k.mT * SCALE / 50) * 50).softmax(-1) @ v


@spelling("dropout", training=False)
def _(q: Any, k: Any, v: Any) -> Any:
    return F.dropout((q @ k.mT * SCALE).softmax(-1), 0.5, torch.is_grad_enabled()) @ v

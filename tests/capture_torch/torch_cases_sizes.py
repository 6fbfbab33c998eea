"""What programs do with sizes: a function of a tensor `x` of shape (n, 3), for any n, each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F


class SizeCase(NamedTuple):
    """A function, and how many compiles eight sizes may take."""

    fn: Callable[[Any], Any]
    compiles: int


CASES: list[SizeCase] = []


def sizes(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """At most two compiles."""
    CASES.append(SizeCase(fn, 2))
    return fn


def decided(compiles: int) -> Callable[[Any], Any]:
    """Python decides by the size, or makes a constant of it."""

    def register(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
        CASES.append(SizeCase(fn, compiles))
        return fn

    return register


EXPRESSIONS = """
x.shape | x.size() | x.size(0) | x.size(-2) | len(x) | x.shape[0] | x.shape[-1] | x.numel() | x.stride()
x.dim() | x.shape[0] + 1 | x.shape[0] - 1 | 2 * x.shape[0] | -x.shape[0] | +x.shape[0] | ~x.shape[0]
abs(-x.shape[0]) | x.shape[0] // 2 | x.shape[0] % 4 | x.shape[0] ** 2 | x.shape[0] / 2 | divmod(x.shape[0], 3)
7 // (x.shape[0] + 1) | x.shape[0] == 3 and 1 | x.shape[0] != x.shape[1] | (x.shape[0] > 2) * 1
max(x.shape[0], 3) | min(x.shape[0], 3, 5) | int(x.shape[0] / 2) | float(x.shape[0]) | round(x.shape[0])
math.ceil(x.shape[0] / 2) | math.floor(x.shape[0] * 0.5) | list(x.shape) | tuple(x.shape) | [*x.shape, 1]
x.shape[:1] | x.shape + (1,) | (2,) + x.shape | x.shape * 2 | x.shape.numel() | math.prod(x.shape)
sum(x.shape) | {"n": x.shape[0]} | (x.shape[0], [x.shape[0] + 1]) | isinstance(x.shape[0], int)
type(x.shape[0]) is int | isinstance(x.shape, torch.Size) | type(x.shape) is torch.Size | x.shape[0] is None
x.shape[0] == "3" | x.shape == (3,) | [*reversed(x.shape)] | [n * 2 for n in x.shape] | x + x.shape[0]
x * (x.shape[0] + 1) | x / max(x.shape[0], 1) | x.view(-1) | x.reshape(3, -1) if len(x) else x | x.t()
x.view(x.shape[0] * 3) | x.unflatten(1, (3, 1)) | x.flatten() | x[None] | x[..., None].squeeze(-1)
x.permute(1, 0) | x[: x.shape[0] // 2] | x[x.shape[0] // 2 :] | x[-1:] | x[::2] | x[:, :2] | x[:, 0] * 1
x[1:] - x[:-1] if len(x) > 1 else x | x.sum(0) | x.sum() | x.mean(1) | x.cumsum(0) | x.softmax(1) | x.softmax(0)
x.sort(0).values | x.norm(dim=1) | torch.arange(x.shape[0]) | torch.zeros(x.shape) | torch.ones(x.shape[0], 2)
torch.full((x.shape[0],), x.shape[0]) | torch.empty_like(x).shape | x.new_zeros(x.shape[0])
torch.zeros_like(x) | torch.eye(x.shape[0]) | torch.linspace(0, 1, 5) | torch.cat([x, x])
torch.cat([x, x]).shape[0] | torch.stack([x, x], 1) | x.repeat(2, 1) | x.expand(2, *x.shape) | x @ x.t()
x.t() @ x | F.linear(x, torch.ones(2, 3)) | F.layer_norm(x, (3,)) | F.pad(x, (1, 1)) | F.pad(x, (0, 0, 1, 0))
F.gelu(x) | F.one_hot(torch.arange(x.shape[0]), 9) | F.cosine_similarity(x, x, dim=0) | x.tril() | x.roll(1, 0)
x.flip(0) | torch.arange(x.shape[0])[:, None] * x | torch.arange(x.shape[0]) / max(x.shape[0] - 1, 1)
x.chunk(3, 1) | x.unbind(1)[0] + 1 | x.narrow(0, 0, x.shape[0] // 2)
x.index_select(0, torch.arange(x.shape[0])) | x.gather(1, torch.zeros_like(x).long())
torch.tensor([x.shape[0], 1]) | torch.where(x > 0, x, x.shape[0]) | x.clamp(max=x.shape[0])
x.masked_fill(x > 0, 0.0) | torch.broadcast_to(x, (2, *x.shape)) | x.is_contiguous() | x.t().is_contiguous()
torch.einsum("ij,kj->ik", x, x) | torch.bmm(x[None], x.t()[None]) | torch.outer(x[:, 0], x[:, 1])
torch.diag(x[:, 0]) | F.scaled_dot_product_attention(x[None], x[None], x[None]) | x.split(2, 1)
x.view(x.shape) | x.transpose(0, 1).contiguous() | x.squeeze(0) | x.squeeze() | x[:, :1].squeeze() | x.squeeze((0, 1))
x[None].squeeze(0) | x[:2] if len(x) > 9 else x | x[-3:] | x[:5] | x + x[:, :1] | x.t() + x[:, 0]
x.t().reshape(-1) | torch.cat([x[:0], x]) | torch.broadcast_tensors(x, x[:, :1]) | torch.atleast_3d(x) | x.nbytes
F.linear(x.t()[None].transpose(1, 2), torch.ones(2, 3)) | F.conv1d(x.t()[None], torch.ones(2, 3, 1)) | x.unsqueeze(0)
torch.Size([x.shape[0], 2]) | 9 in x.shape | x.new_zeros(torch.Size((x.shape[0],)) + (2,)) | [9, 99].count(x.shape[0])
torch.vmap(lambda a: a * a.shape[0])(x) | torch.vmap(torch.func.grad(lambda a: a.sin().sum()))(x)
torch.vmap(lambda a: torch.vmap(lambda b: b * a.sum())(a))(x) | torch.vmap(torch.sin, 0, 1)(x)
x[: round(x.shape[0] / 2)] | x * round(x.shape[0] / 4) | round(x.shape[0] / 2) | max(1, round(x.shape[0] / 256))
x.new_zeros(round((x.shape[0] + 1) / 2.0)) | x + 7 // max(1, round(x.shape[0] / 99))
torch.inner(x, x) | torch.tensordot(x, x, ([1], [1])) | F.conv2d(x[:, None, None], torch.ones(1, 1, 1, 2))
"""
# What asks whether a size is 0 or 1: Python, or an operator whose result lies otherwise in memory then.
DECIDING = (
    " if ",
    " and ",
    "x.split(",
    "x.shape == ",
    "F.one_hot",
    "contiguous()",
    "einsum",
    "outer",
    "attention",
    "roll",
    *("squeeze", "reshape(-1)", "conv1d", "inner"),
)


def told_of(result: Any) -> Any:
    """A result with what is known of its shape, which has to be right as well."""
    if isinstance(result, torch.Tensor):
        return result, result.shape, result.dim(), result.numel()
    return [told_of(item) for item in result] if isinstance(result, (tuple, list)) else result


for _text in (text.strip() for line in EXPRESSIONS.splitlines() for text in line.split("|")):
    if _text:
        _space: dict[str, Any] = {"torch": torch, "F": F, "math": math, "told_of": told_of}
        exec(compile(f"def expression(x):\n    return told_of({_text}), x + 1", f"<{_text}>", "exec"), _space)
        _space["expression"].__name__ = _text
        CASES.append(SizeCase(_space["expression"], 4 if any(word in _text for word in DECIDING) else 2))


@sizes
def stored(x: Any) -> Any:
    kept = {"size": x.shape[0]}
    kept["twice"] = kept["size"] * 2
    return kept, x * kept["twice"]


@sizes
def helper(x: Any) -> Any:
    def half(n: int) -> int:
        return n // 2

    return x[half(len(x)) :], half(x.shape[0] + 2)


@sizes
def checked(x: Any) -> Any:
    torch._check(x.shape[0] >= 0)
    assert x.shape[0] >= 0, "a size"
    return x + 1


@sizes
def padded(x: Any) -> Any:
    rest = -x.shape[0] % 8
    return F.pad(x, (0, 0, 0, rest)), rest


@sizes
def makes_no_difference(x: Any, mask: Any = None, causal: Any = True) -> Any:
    no_mask = mask is None
    if x.shape[0] > 1 and mask is not None:
        x = x + mask
    if x.shape[0] == 1 or no_mask:
        x = x + 1
    is_long = x.shape[0] > 3 and mask is None
    return x, x.shape[0] > 1 and mask is not None and causal, is_long, x.shape[0] > 2 or mask is None


@sizes
def windows(x: Any) -> Any:
    wide = torch.cat([x, x, x, x, x.new_ones(4, 3)])
    return wide.unfold(0, 4, 2).shape, F.avg_pool1d(wide.t()[None], 2).shape


@decided(9)
def keyed(x: Any) -> Any:
    return {x.shape[0]: x + 1}


@decided(9)
def told(x: Any) -> Any:
    return f"{x.shape[0]} rows", x + 1


@decided(9)
def looped(x: Any) -> Any:
    return [x + i for i in range(x.shape[0])]


@decided(3)
def branched(x: Any) -> Any:
    return x + 1 if x.shape[0] > 4 else x - 1


@sizes
def fills_a_copy(x: Any) -> Any:
    made = torch.empty_like(x)
    made[:, [2, 0, 1]] = x
    scores = torch.zeros_like(x.t()).t() + x
    scores += x
    return made, scores


@sizes
def steps_into_zeros(x: Any) -> Any:
    state, made = torch.zeros(x[:, 0].shape), torch.zeros_like(x)
    for column in range(x.shape[1]):
        state = state * 0.5 + x[:, column]
        made[:, column] = state
    return made


@sizes
def writes_to_what_may_be_its_own(x: Any) -> Any:
    flat = x.clone().t().reshape(-1)
    flat += 1
    return flat.sum()


@sizes
def common_shapes(x: Any) -> Any:
    twice = x * 2
    return torch.broadcast_shapes(x.shape, (4, 1, 1), twice.shape, (1, 3)), torch.broadcast_shapes(x.shape[0], (1,))


@sizes
def filled_by_a_tensor(x: Any) -> Any:
    return x.new_full((x.shape[0], 2), torch.tensor(2.5)), F.pad(x, (0, x.shape[0]), value=1.0)


def is_captured() -> bool:
    try:
        return torch.compiler.is_compiling()
    except Exception:
        return False


@sizes
def only_if_it_is_not_captured(x: Any) -> Any:
    if x.dim() > 5:
        return x
    return x + 1 if x.shape[0] == 1 and not is_captured() else 1 + x


@sizes
def window_of_turns(x: Any) -> Any:
    total = x.sum()
    for turn in range(x.shape[0], x.shape[0] + 3):
        total = total * turn
    return total, [turn + 1 for turn in range(-x.shape[0], 2 - x.shape[0])]


@decided(5)
def chunked_by_turns(x: Any) -> Any:
    return [x[start : start + 4] for start in range(0, x.shape[0], 4)], [end + 1 for end in range(x.shape[0], 0, -4)][
        1:
    ]


@decided(9)
def kept_range(x: Any) -> Any:
    return range(0, x.shape[0], 4), list(map(range, [x.shape[0]])), x + 1


@sizes
def part_of_another(x: Any) -> Any:
    table = torch.arange(20)
    return table[x.shape[0] - 3 : x.shape[0]], table[-x.shape[0] :], table[x.shape[0] :].narrow(0, 1, 2)


@decided(3)  # from the end there is another way to count
def last_of_another(x: Any) -> Any:
    joined = torch.cat([x, x])
    return joined[-x.shape[0] :] * x, torch.ones(30, 3)[x.shape[0]] * 2, torch.ones(30, 3).select(0, x.shape[0] + 1)


@sizes
def pooled_to_one(x: Any) -> Any:
    """What is left of small sizes is 1, of large ones more."""
    image = x.new_ones(1, 2, x.shape[0] + 1, 3) * 2
    small = F.conv2d(image, x.new_ones(2, 2, 1, 1), stride=(4, 1))
    return F.adaptive_avg_pool2d(small, 1), F.batch_norm(small, torch.zeros(2), torch.ones(2)), small.flatten(2).mT + 1

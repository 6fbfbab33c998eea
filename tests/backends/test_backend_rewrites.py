"""Attention as one operator: rows without keys, what only resembles attention, masks that change, settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from attention_spellings import CAUSAL, INF
from attention_tracing import Tensors, Traced, compiled, distance, outcome
from torch import nn
from torch.backends import cuda

import torchdynamo
from torchdynamo.backends import BACKENDS, artifacts
from torchdynamo.errors import UnknownSetting
from torchdynamo.graph.passes.attention import emit, kernels

F = nn.functional


def heads(*shape: int, count: int = 3) -> Tensors:
    torch.manual_seed(0)
    return [torch.randn(shape or (2, 2, 8, 8)) for _ in range(count)]


def check(fn: Callable[..., Any], given: Tensors, training: bool = False) -> Traced:
    """Compare with eager, strides included."""
    found, traced = compiled(fn, given, training)
    wanted = outcome(fn, given, training)
    torch.testing.assert_close(found, wanted, equal_nan=True, atol=2e-6, rtol=2e-5)
    assert found[0].stride() == wanted[0].stride()
    return traced


def test_graphs_on_whose_rewrites_inductor_fails_are_compiled_as_written(caplog: pytest.LogCaptureFixture) -> None:
    passes = []

    def refuse(graph: torch.fx.Graph) -> None:
        passes.append(any("scaled_dot_product" in str(node.target) for node in graph.nodes))
        if passes[-1]:
            raise RuntimeError("no attention today")

    attention, given = filled(-INF, torch.ones(8, 8).triu(1).bool()), heads()
    options = {"post_grad_custom_pre_pass": refuse, "fx_graph_cache": False}
    with torchdynamo.config.patch(suppress_errors=False):
        compiled = torchdynamo.compile(attention, backend="inductor", options=options)
        torch.testing.assert_close(compiled(*given), attention(*given))
    assert passes == [True, False]
    assert "a graph is compiled without rewrites: Inductor fails on what it becomes" in caplog.text
    assert "no attention today" in str(torchdynamo.explain(attention, backend="inductor", options=options)(*given))


# ---- rows without keys ----------------------------------------------------------------------------------------------

ROWS = torch.ones(8, 8, dtype=torch.bool)
ROWS[2] = False
ROWS[5, 3:] = False
HIDDEN = torch.zeros(2, 1, 1, 8, dtype=torch.bool)
HIDDEN[1] = True  # of one sequence, all


def filled(value: float, mask: torch.Tensor) -> Callable[..., Any]:
    return lambda q, k, v: (q @ k.mT / 3).masked_fill(mask, value).softmax(-1) @ v


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("value", [-INF, -1e9, -1e4, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("mask", [~ROWS, HIDDEN, ~ROWS.expand(2, 2, 8, 8)], ids=["rows", "sequence", "all of them"])
def test_rows_without_keys(value: float, mask: torch.Tensor, training: bool) -> None:
    assert check(filled(value, mask), heads(), training).fused[0] == 1


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("value", [-INF, torch.finfo(torch.float32).min])
def test_rows_without_keys_by_addition(value: float, training: bool) -> None:
    """In training they are left as written where the mask's values are not known: gradients may be others."""
    added = torch.zeros(8, 8).masked_fill(~ROWS, value)

    def fn(q: Any, k: Any, v: Any) -> Any:
        return (q @ k.mT / 3 + added).softmax(-1) @ v

    assert check(fn, heads(), training).fused[0] == (not training)


ADDED: dict[str, Callable[[Any], Any]] = {
    "where": lambda keep: torch.where(keep, torch.tensor(0.0), torch.finfo(torch.float32).min),
    "times": lambda keep: (1.0 - keep.float()) * -1e9,
    "masked_fill": lambda keep: torch.zeros(keep.shape).masked_fill(~keep, -3e38),
    "beside a bias": lambda keep: torch.where(keep, 0.0, -3e38) + keep.cumsum(-1) * -0.5,
}


@pytest.mark.parametrize("mask", [ROWS, ~HIDDEN, torch.zeros(1, 1, 8, 8).bool()], ids=["rows", "sequence", "all"])
@pytest.mark.parametrize("name", list(ADDED))
def test_rows_without_keys_by_addition_of_known_values(name: str, mask: torch.Tensor) -> None:
    """Their weights are equal, and queries and keys have gradients for them nevertheless."""

    def fn(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return (q @ k.mT / 3 + ADDED[name](mask)).softmax(-1) @ v

    given = heads()
    found, traced = compiled(lambda *args: fn(*args, mask), given, training=True)
    wanted = outcome(lambda *args: fn(*args, mask), given, True)
    torch.testing.assert_close(found, wanted, atol=2e-6, rtol=2e-5)
    assert traced.fused == [1, 1], traced.lines


UNEVEN: dict[str, Callable[[Any], Any]] = {
    "two values": lambda keep: torch.where(keep, -1e9, -2e9),
    "an infinity": lambda keep: torch.where(keep, -1e9, -INF),
    "a bias that counts": lambda keep: torch.where(keep, 0.0, -1e9) + keep.cumsum(-1) * 100.0,
}


@pytest.mark.parametrize("name", list(UNEVEN))
def test_rows_without_keys_whose_keys_differ(name: str) -> None:
    def fn(q: Any, k: Any, v: Any) -> Any:
        return (q @ k.mT / 3 + UNEVEN[name](ROWS.roll(1, 0))).softmax(-1) @ v

    assert check(fn, heads(), training=True).fused == [0, 0]


@pytest.mark.parametrize("value", [-1e9, torch.finfo(torch.float32).min])
def test_rows_of_several_masks_that_are_added_are_of_the_keys_that_fewest_masks_hide(value: float) -> None:
    padding = torch.zeros(8, 8)
    padding[:, :2] = value
    both = padding + torch.zeros(8, 8).masked_fill(~torch.ones(8, 8).tril().bool(), value)

    def fn(q: Any, k: Any, v: Any) -> Any:
        return (q @ k.mT / 3 + both).softmax(-1) @ v

    assert check(fn, heads(), False).fused[0] == 1


@pytest.mark.parametrize("training", [False, True])
def test_rows_that_a_finite_mask_fills_are_no_nan_to_replace(training: bool) -> None:
    check(lambda q, k, v: (q @ k.mT).masked_fill(~ROWS, -1e9).softmax(-1).nan_to_num() @ v, heads(), training)


@pytest.mark.parametrize("value", [-1e9, -INF])
def test_weights_that_one_of_two_masks_sets_to_zero(value: float) -> None:
    later = ~torch.ones(8, 8).tril().bool()

    def fn(q: Any, k: Any, v: Any) -> Any:
        scores = (q @ k.mT).masked_fill(later, value).masked_fill(~ROWS, value)
        return scores.softmax(-1).masked_fill(~ROWS, 0.0) @ v

    check(fn, heads(), False)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("value", [-INF, -1e9])
def test_rows_without_keys_and_a_bias(value: float, training: bool) -> None:
    bias = torch.randn(1, 2, 8, 8)
    bias[0, 0, 1] = -INF

    def fn(q: Any, k: Any, v: Any) -> Any:
        return (q @ k.mT / 3 + bias).masked_fill(~ROWS, value).softmax(-1) @ v

    assert check(fn, heads(), training).fused[0] == 1


@pytest.mark.parametrize("training", [False, True])
def test_rows_without_keys_that_become_zero(training: bool) -> None:
    def fn(q: Any, k: Any, v: Any) -> Any:
        return (q @ k.mT).masked_fill(~ROWS, -1e9).softmax(-1).masked_fill(~ROWS, 0.0) @ v

    traced = check(fn, heads(), training)
    assert traced.fused[0] == 0  # two masks, which nobody knows to be one

    def once(q: Any, k: Any, v: Any) -> Any:
        mask = ~ROWS
        return (q @ k.mT).masked_fill(mask, -1e9).softmax(-1).masked_fill(mask, 0.0) @ v

    assert check(once, heads(), training).fused[0] == 1


def test_rows_of_nan_that_become_zero() -> None:
    def fn(q: Any, k: Any, v: Any) -> Any:
        return torch.nan_to_num((q @ k.mT).masked_fill(~ROWS, -INF).softmax(-1)) @ v

    assert check(fn, heads()).fused == [1]
    assert check(fn, heads(), training=True).fused == [0, 0]  # gradients are NaN


def test_a_fill_that_has_weight() -> None:
    traced = check(filled(-50.0, ~ROWS), heads())
    assert traced.fused == [0]
    assert "fills in -50" in traced.lines[0]


def test_a_bias_after_a_finite_fill() -> None:
    bias = torch.randn(8, 8)

    def fn(q: Any, k: Any, v: Any) -> Any:
        return ((q @ k.mT).masked_fill(~ROWS, -1e4) + bias).softmax(-1) @ v

    assert check(fn, heads()).fused == [0]


def test_a_fill_before_a_scale() -> None:
    assert check(lambda q, k, v: ((q @ k.mT).masked_fill(~ROWS, -1e9) / 3).softmax(-1) @ v, heads()).fused == [1]
    assert check(lambda q, k, v: ((q @ k.mT).masked_fill(~ROWS, -1e9) / -3).softmax(-1) @ v, heads()).fused == [0]
    assert check(lambda q, k, v: ((q @ k.mT).masked_fill(~ROWS, -1e4) / 64).softmax(-1) @ v, heads()).fused == [0]


@pytest.mark.parametrize("value", [math.nan, INF, -INF])
@pytest.mark.parametrize("length", [8, 40])
def test_queries_of_nan(length: int, value: float) -> None:
    keep = torch.ones(length, length).bool().tril()
    keep[5] = False

    def plain(q: Any, k: Any, v: Any) -> Any:
        return (q @ k.mT).softmax(-1) @ v

    def added(q: Any, k: Any, v: Any) -> Any:
        return (q @ k.mT + torch.where(keep, 0.0, -3e38)).softmax(-1) @ v

    given = heads(2, 2, length, 8)
    given[0][0, 0, 2, 3] = given[0][1, 1, 5, 0] = value
    for fn in (plain, added):
        if fn is plain or not math.isinf(value):
            assert check(fn, given).fused == [1]


# ---- what only resembles attention, or is seen from outside ---------------------------------------------------------


def weights_too(q: Any, k: Any, v: Any) -> Any:
    weights = (q @ k.mT).softmax(-1)
    return torch.cat([weights @ v, weights], -1)


def scores_too(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT
    return scores.softmax(-1) @ v + scores.mean()


NOT_REPLACED: dict[str, tuple[Callable[..., Any], str]] = {
    "the weights, too": (weights_too, "used a second time"),
    "the scores, too": (scores_too, "used a second time"),
    "over queries": (lambda q, k, v: (q @ k.mT).softmax(-2) @ v, "another dimension"),
    "over heads": (lambda q, k, v: (q @ k.mT).softmax(1) @ v, "another dimension"),
    "values first": (lambda q, k, v: v.mT @ (q @ k.mT).softmax(-1), "not the first factor"),
    "a factor per key": (lambda q, k, v: ((q @ k.mT) * v[..., 0].unsqueeze(-2)).softmax(-1) @ v, "`mul`"),
    "clamped": (lambda q, k, v: (q @ k.mT).clamp(max=2).softmax(-1) @ v, "not known here"),
    "values of another size": (lambda q, k, v: (q @ k.mT).softmax(-1) @ v[..., :4], "size of heads"),
    "a sum that is larger": (lambda q, k, v: hand_written(q @ k.mT, 1.0) @ v, ""),
}


def hand_written(scores: Any, more: float) -> Any:
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return weights / (weights.sum(-1, keepdim=True) + more)


@pytest.mark.parametrize("name", list(NOT_REPLACED))
def test_not_replaced(name: str) -> None:
    fn, reason = NOT_REPLACED[name]
    traced = check(fn, heads(), training=True)
    assert traced.fused == [0, 0]
    assert not reason or any(reason in line and __file__ in line for line in traced.lines), traced.lines


def test_a_causal_mask_of_fewer_queries() -> None:
    """The operator's own aligns the first query with the first key; a decode wants the last with the last."""
    q, k, v = heads()
    q = q[:, :, -3:]

    def fn(q: Any, k: Any, v: Any) -> Any:
        return (q @ k.mT).masked_fill(~torch.ones(3, 8, dtype=torch.bool).tril(5), -INF).softmax(-1) @ v

    def first(q: Any, k: Any, v: Any) -> Any:
        return (q @ k.mT).masked_fill(~torch.ones(3, 8, dtype=torch.bool).tril(), -INF).softmax(-1) @ v

    assert "with a mask" in check(fn, [q, k, v]).lines[0]
    assert "is_causal" in check(first, [q, k, v]).lines[0]


def test_a_learned_bias() -> None:
    """No kernel of a CPU gives it its gradient."""
    bias = nn.Parameter(torch.randn(2, 8, 8))

    def fn(q: Any, k: Any, v: Any) -> Any:
        return (q @ k.mT + bias).softmax(-1) @ v

    assert check(fn, heads()).fused == [1]
    traced = check(fn, heads(), training=True)
    assert traced.fused == [0, 0]
    assert "gradient" in traced.lines[0]
    assert bias.grad is not None


@pytest.mark.parametrize("others", [True, False])
def test_gradients_of_a_mask_are_left_to_cudnn_only_if_no_other_kernel_is_allowed(
    others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[bool] = []

    def attend(*args: Any, **options: Any) -> torch.Tensor:
        allowed.append(cuda.cudnn_sdp_enabled())
        return F.scaled_dot_product_attention(*args, **options)

    monkeypatch.setattr(kernels, "F", SimpleNamespace(scaled_dot_product_attention=attend))
    for name in ("flash_sdp_enabled", "mem_efficient_sdp_enabled", "math_sdp_enabled"):
        monkeypatch.setattr(cuda, name, lambda: others)
    for training in (False, True):
        compiled(lambda q, k, v: (q @ k.mT).masked_fill(ROWS.T, -INF).softmax(-1) @ v, heads(), training)
    assert allowed == [not others] * len(allowed) and allowed
    assert cuda.cudnn_sdp_enabled()


def test_second_derivatives() -> None:
    def fn(q: Any, k: Any, v: Any) -> Any:
        return (q @ k.mT / 3).softmax(-1) @ v

    def second(run: Callable[..., Any]) -> Any:
        q, k, v = (each.requires_grad_() for each in heads())
        (grad,) = torch.autograd.grad(run(q, k, v).square().sum(), q, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), [q, k, v])

    torchdynamo.reset()
    torch.testing.assert_close(second(torchdynamo.compile(fn, backend=Traced())), second(fn), atol=1e-4, rtol=1e-4)


def test_autocast() -> None:
    def fn(q: Any, k: Any, v: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return (q @ k.mT / 3).masked_fill(~ROWS, -1e9).softmax(-1) @ v

    given = heads()
    found, traced = compiled(fn, given, training=True)
    eager, exact = outcome(fn, given, True), outcome(lambda *args: filled(-1e9, ~ROWS)(*args), given, True)
    assert traced.fused == [1, 1]
    assert found[0].dtype == torch.bfloat16
    assert distance(found, exact) <= 1.5 * distance(eager, exact)


def test_autocast_that_ends_on_the_way() -> None:
    def fn(q: Any, k: Any, v: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            scores = q @ k.mT
        return scores.float().softmax(-1) @ v

    found, traced = compiled(fn, heads())
    torch.testing.assert_close(found, outcome(fn, heads(), False))
    assert traced.fused == [0]
    assert "changes on the way" in traced.lines[0]


def test_memory_that_is_written_to_on_the_way() -> None:
    def fn(q: Any, k: Any, v: Any) -> Any:
        k = k.clone()
        weights = (q @ k[:, :, :4].mT).softmax(-1)
        k[:, :, 0] = 7
        return weights @ v[:, :, :4] + k

    traced = check(fn, heads())
    assert traced.fused == [0]
    assert "written to" in traced.lines[0]


def test_a_view_behind_it() -> None:
    """The operator's result may lie otherwise in memory than a product, which a view would notice."""

    def fn(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (each.transpose(1, 2).contiguous().transpose(1, 2) for each in (q, k, v))
        out = (q @ k.mT).softmax(-1) @ v
        return out.view(4, 8, 8).transpose(0, 1) + 1

    assert check(fn, heads(), training=True).fused == [1, 1]


def test_a_norm_behind_it() -> None:
    norm = nn.BatchNorm1d(16)

    def fn(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (each.transpose(1, 2).contiguous().transpose(1, 2) for each in (q, k, v))
        out = ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).reshape(2, 8, 16)
        return norm(out.transpose(1, 2))

    assert check(fn, heads(), training=True).fused[0] == 1


def test_a_result_that_is_written_to() -> None:
    def fn(q: Any, k: Any, v: Any) -> Any:
        out = ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).reshape(2, 8, 16)
        out += 1
        return out

    assert check(fn, heads(), training=True).fused == [1, 1]


def test_a_result_that_the_caller_writes_to() -> None:
    """The operator's backward needs its result; a product's does not."""

    def fn(q: Any, k: Any, v: Any) -> Any:
        return ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).reshape(2, 8, 16)

    torchdynamo.reset()
    run, grads = torchdynamo.compile(fn, backend=Traced()), list[Any]()
    for each in (run, fn):
        q, k, v = (each.requires_grad_() for each in heads())
        out = each(q, k, v)
        out.mul_(2)
        grads.append(torch.autograd.grad(out.sum(), [q, k, v]))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("shape", [(2, 2, 0, 8), (0, 2, 8, 8), (2, 2, 8, 0)])
def test_nothing_to_compute(shape: tuple[int, ...]) -> None:
    assert check(filled(-INF, torch.tensor(False)), heads(*shape)).fused == [0]


def test_a_bias_that_is_learned_where_gradients_are_on_inside() -> None:
    bias = nn.Parameter(torch.randn(2, 8, 8))

    def fn(q: Any, k: Any, v: Any) -> Any:
        with torch.enable_grad():
            return (q @ k.mT + bias).softmax(-1) @ v

    torchdynamo.reset()
    with torch.no_grad():
        found = torchdynamo.compile(fn, backend=Traced())(*heads())
    found.sum().backward()
    first, bias.grad = bias.grad, None
    fn(*heads()).sum().backward()
    torch.testing.assert_close(first, bias.grad, atol=1e-5, rtol=1e-5)


def test_in_a_checkpoint() -> None:
    def fn(q: Any, k: Any, v: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(filled(-1e9, ~ROWS), q, k, v, use_reentrant=False)

    assert sum(check(fn, heads(), training=True).fused) >= 2


def test_sizes_that_vary() -> None:
    def fn(q: Any, k: Any, v: Any) -> Any:
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        mask = torch.ones(q.size(2), k.size(2), dtype=torch.bool).tril()
        return (scores.masked_fill(~mask, -INF).softmax(-1) @ v).transpose(1, 2).reshape(q.size(0), q.size(2), -1)

    torchdynamo.reset()
    traced = Traced()
    run = torchdynamo.compile(fn, backend=traced, dynamic=True, fullgraph=True)
    for length in (8, 12, 5):
        given = heads(2, 2, length, 8)
        torch.testing.assert_close(run(*given), fn(*given))
    assert traced.fused == [1]


# ---- caps on scores -------------------------------------------------------------------------------------------------


def capped(q: Any, k: Any, v: Any) -> Any:
    scores = torch.tanh(q @ k.mT * 0.25 / 5) * 5
    return scores.masked_fill(~torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril(), -INF).softmax(-1) @ v


def capped_and_hidden(q: Any, k: Any, v: Any) -> Any:
    keep = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool)
    keep[5] = False
    return (torch.tanh(q @ k.mT * 0.25 / 5) * 5 + torch.where(keep, 0.0, -3e38)).softmax(-1) @ v


def capped_bias(q: Any, k: Any, v: Any) -> Any:
    bias = torch.arange(q.size(1)).view(-1, 1, 1) * torch.arange(k.size(-2)) * 0.01
    return ((torch.tanh(q @ k.mT) + bias) * 3).masked_fill(~PADDED, -1e9).softmax(-1) @ v


PADDED = torch.ones(2, 1, 1, 20, dtype=torch.bool)
PADDED[0, ..., 11:] = False


@pytest.mark.parametrize("fn", [capped, capped_and_hidden, capped_bias])
def test_a_cap_on_scores(fn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where `flex_attention` has kernels for all of these."""
    monkeypatch.setattr(emit, "check_flexible", lambda *_, **__: None)
    found, traced = compiled(fn, heads(2, 2, 20, 16))
    torch.testing.assert_close(found, outcome(fn, heads(2, 2, 20, 16), False))
    assert "flex_attention with a cap" in traced.lines[0]
    assert sum("flex_attention" in str(node.target) for node in traced.graphs[0].nodes) == 1


@pytest.mark.parametrize("fn", [capped, capped_bias])
def test_gradients_through_a_cap(fn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit, "check_flexible", lambda *_, **__: None)
    found, traced = compiled(fn, heads(2, 2, 20, 16), training=True)
    torch.testing.assert_close(found, outcome(fn, heads(2, 2, 20, 16), True), atol=2e-6, rtol=2e-5)
    assert [sum("flex_attention" in str(node.target) for node in graph.nodes) for graph in traced.graphs] == [1, 1]


def test_rows_without_keys_and_a_cap_in_training() -> None:
    assert "other gradients" in check(capped_and_hidden, heads(2, 2, 20, 16), training=True).lines[0]


def test_a_cap_after_a_mask_is_left_as_written() -> None:
    def fn(q: Any, k: Any, v: Any) -> Any:
        return torch.tanh((q @ k.mT).masked_fill(~ROWS, -1e9)).softmax(-1) @ v

    assert "after they were masked" in check(fn, heads()).lines[0]


def test_a_cap_keeps_nan_and_infinities(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cap of an infinite score is finite."""
    monkeypatch.setattr(emit, "check_flexible", lambda *_, **__: None)
    q, k, v = heads(2, 2, 80, 16)
    q[0, 0, 3], q[0, 1, 4, 2], q[1, 0, 7, :2] = math.nan, INF, torch.tensor([INF, -INF])
    k[0, 1, 5, 0] = INF
    assert "flex_attention with a cap" in check(capped, [q, k, v]).lines[0]


def test_a_cap_on_a_cpu_is_left_as_written() -> None:
    q, k, v = heads(1, 2, 512, 16)
    q[0, 0, 3], k[0, 1, 5, 0] = math.nan, INF
    assert "no kernel on cpu" in check(capped, [q, k, v]).lines[0]


@pytest.mark.parametrize(
    ("dtype", "size", "reason"),
    [(torch.float64, 16, "no fused kernel for torch.float64"), (torch.float32, 24, "differ in the size of heads")],
)
def test_a_cap_that_a_gpu_has_no_kernel_for(
    dtype: torch.dtype, size: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emit, "FEWEST_KEYS", {"cpu": 0})
    monkeypatch.setattr(emit, "KERNELS", {"cpu": emit.KERNELS["cuda"]})
    q, k, v = (each.to(dtype) for each in heads(2, 2, 20, 16))
    assert reason in check(capped, [q, k, v.repeat(1, 1, 1, 2)[..., :size]]).lines[0]


# ---- masks whose contents prove something ---------------------------------------------------------------------------


class Causal(nn.Module):
    """Attention with a mask that it keeps, as nanoGPT's."""

    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(16, 16).tril().view(1, 1, 16, 16))

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        length = q.size(2)
        scores = (q @ k.mT / 3).masked_fill(self.mask[:, :, :length, :length] == 0, -INF)
        return scores.softmax(-1) @ v


def in_place(module: Causal) -> None:
    module.mask[:, :, :, 3] = 0
    module.mask[:, :, :, 0] = 1


def loaded(module: Causal) -> None:
    module.load_state_dict({"mask": torch.ones(1, 1, 16, 16)})


def assigned(module: Causal) -> None:
    module.mask = torch.ones(1, 1, 16, 16).triu(-2) + torch.eye(16)


def by_data(module: Causal) -> None:
    module.mask.data[:, :, :, 1] = 0


def by_numpy(module: Causal) -> None:
    module.mask.numpy()[:, :, 1:, 1] = 0


@pytest.mark.parametrize("change", [in_place, loaded, assigned, by_data, by_numpy])
def test_a_mask_that_changes(change: Callable[[Causal], None]) -> None:
    torchdynamo.reset()
    module, traced, given = Causal(), Traced(), heads()
    run = torchdynamo.compile(module, backend=traced)
    for _ in range(2):
        torch.testing.assert_close(run(*given), module(*given))
    assert "is_causal" in traced.lines[0]
    change(module)
    for _ in range(2):
        torch.testing.assert_close(run(*given), module(*given))
    module.mask = torch.ones(16, 16).tril().view(1, 1, 16, 16)
    torch.testing.assert_close(run(*given), module(*given))
    assert traced.spare <= 1


def test_a_mask_beyond_what_is_read() -> None:
    torchdynamo.reset()
    module, traced, given = Causal(), Traced(), heads()
    run = torchdynamo.compile(module, backend=traced)
    run(*given)
    module.mask[:, :, 8:] = 0
    torch.testing.assert_close(run(*given), module(*given))
    assert traced.spare == 0


def test_a_mask_that_is_an_argument() -> None:
    def fn(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return (q @ k.mT).masked_fill(mask == 0, -INF).softmax(-1) @ v

    traced = check(fn, [*heads(), CAUSAL[:8, :8]])
    assert "with a mask" in traced.lines[0]


# ---- backends and settings ------------------------------------------------------------------------------------------


def test_inductor_rewrites(tmp_path: Path) -> None:
    """And what it compiles can be written for another process, with the contents that it rests on."""
    torchdynamo.reset()
    module, given, graphs = Causal(), heads(), list[torch.fx.Graph]()
    made: list[Any] = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        options = {"post_grad_custom_pre_pass": graphs.append, "fx_graph_cache": False}
        made[:] = [BACKENDS["inductor"](gm, inputs, options=options), gm, inputs]
        return made[0]

    run = torchdynamo.compile(module, backend=backend)
    torch.testing.assert_close(run(*given), module(*given))
    if torch.__version__ >= "2.13":
        artifact = artifacts.dump(made[0])
        assert isinstance(artifact, artifacts.Artifact)
        for name, content in artifact.blobs.items():
            (tmp_path / name).write_bytes(content)
        loaded = artifacts.load(
            artifact.data,
            lambda name: artifacts.BlobFile(str(tmp_path / name), (tmp_path / name).read_bytes()),
            lambda: made[1],
        )
    else:
        loaded = made[0]
    torch.testing.assert_close(loaded(*made[2])[0], module(*given))
    module.mask.data[:, :, :, 1] = 0
    torch.testing.assert_close(run(*given), module(*given))
    torch.testing.assert_close(loaded(*made[2])[0], module(*given))
    assert [sum("_scaled_dot_product" in str(node.target) for node in graph.nodes) for graph in graphs] == [1, 1]


def test_explain_tells() -> None:
    report = torchdynamo.explain(weights_too, backend=Traced())(*heads())
    assert "left as written" in report.rewrites[0]
    assert "Rewrites" in str(report)


@pytest.mark.parametrize("off", ["config", "options"])
def test_rewrites_can_be_switched_off(off: str) -> None:
    given, graphs = heads(), list[torch.fx.Graph]()
    options: dict[str, Any] = {"post_grad_custom_pre_pass": graphs.append, "fx_graph_cache": False}
    options["pattern_matcher"] = False  # Inductor's own patterns
    if off == "options":
        options["rewrites"] = False
    torchdynamo.reset()
    with torchdynamo.config.patch(rewrites=off != "config"):
        torchdynamo.compile(lambda q, k, v: (q @ k.mT).softmax(-1) @ v, backend="inductor", options=options)(*given)
    assert not any("_scaled_dot_product" in str(node.target) for node in graphs[0].nodes)


def test_a_choice_that_there_is_not() -> None:
    with pytest.raises(UnknownSetting, match="rewrites"):
        torchdynamo.compile(lambda x: x + 1, backend="inductor", options={"rewrites": "all"})


def test_aot_eager_computes_as_eager() -> None:
    torchdynamo.reset()
    run, fn = torchdynamo.compile(filled(-INF, ~ROWS), backend="aot_eager"), filled(-INF, ~ROWS)
    torch.testing.assert_close(run(*heads()), fn(*heads()), rtol=0, atol=0, equal_nan=True)

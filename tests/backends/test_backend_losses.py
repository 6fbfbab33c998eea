"""Losses of large vocabularies in chunks: results and gradients are eager's, and what is left as written says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attention_tracing import Tensors, Traced, distance
from torch import nn

import torchdynamo
from torchdynamo.errors import UnknownSetting
from torchdynamo.graph.passes.losses.plan import LossPlan

F = nn.functional
ROWS, SIZE, CLASSES = 10, 8, 50
LABELS = torch.tensor([3, 49, 0, 7, -100, -100, -100, 3, 12, 3])
Write = Callable[[Any, Any, Any, Any], Any]


def given(dtype: torch.dtype = torch.float32) -> Tensors:
    torch.manual_seed(0)
    return [torch.randn(shape).to(dtype) for shape in ((ROWS, SIZE), (CLASSES, SIZE), (CLASSES,))]


def outcome(fn: Write, tensors: Tensors, labels: torch.Tensor = LABELS) -> Tensors:
    leaves = [each.clone().requires_grad_() for each in tensors]
    loss = fn(*leaves, labels)
    (loss * 3).backward()
    return [loss.detach(), *(each.grad for each in leaves if each.grad is not None)]


def compiled(fn: Write, tensors: Tensors, chunks: int = 4, labels: torch.Tensor = LABELS) -> tuple[Tensors, Traced]:
    torchdynamo.reset()
    traced = Traced(LossPlan(chunks))
    with torchdynamo.config.patch(suppress_errors=False):
        return outcome(torchdynamo.compile(fn, backend=traced, fullgraph=True), tensors, labels), traced


def count(traced: Traced) -> list[int]:
    return [sum("chunked_loss" in str(node.target) for node in graph.nodes) for graph in traced.graphs]


def in_autocast(x: Any, w: Any, b: Any, y: Any) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        logits = F.linear(x.view(2, 5, SIZE), w, b)
    logits = logits[..., :-1, :].contiguous().float()
    return F.cross_entropy(logits.view(-1, CLASSES), y.view(2, 5)[:, 1:].reshape(-1))


def two_dimensions(x: Any, w: Any, b: Any, y: Any) -> Any:
    return F.cross_entropy(F.linear(x.view(2, 5, SIZE).sin(), w, b).view(-1, CLASSES), y.view(-1))


SPELLINGS: dict[str, Write] = {
    "a layer": lambda x, w, b, y: F.cross_entropy(F.linear(x, w, b), y),
    "two dimensions of rows": two_dimensions,
    "a product": lambda x, w, b, y: F.cross_entropy(x @ w.T, y),
    "a sum": lambda x, w, b, y: F.cross_entropy(F.linear(x, w), y, reduction="sum"),
    "logarithms": lambda x, w, b, y: F.nll_loss(F.log_softmax(F.linear(x, w), -1), y),
    "a module": lambda x, w, b, y: nn.CrossEntropyLoss(label_smoothing=0.1)(F.linear(x, w, b), y),
    "another label that is ignored": lambda x, w, b, y: F.cross_entropy(x @ w.mT, y.clamp(min=0), ignore_index=3),
    "a weight that is tied": lambda x, w, b, y: F.cross_entropy(F.linear(x + w[:ROWS], w), y) + w.sum(),
    "autocast, shifted": in_autocast,
    "an ellipsis before all rows": lambda x, w, b, y: F.cross_entropy(F.linear(x[:, None], w)[:, 0, ...], y),
    "a frozen weight": lambda x, w, b, y: F.cross_entropy(F.linear(x, w.detach(), b), y),
    "frozen rows": lambda x, w, b, y: F.cross_entropy(F.linear(x.detach(), w, b), y),
}


HALF = [(name, torch.bfloat16) for name in ("a layer", "a module")]


@pytest.mark.parametrize(("name", "dtype"), [*((name, torch.float32) for name in SPELLINGS), *HALF])
def test_a_spelling(name: str, dtype: torch.dtype) -> None:
    fn = SPELLINGS[name]
    found, traced = compiled(fn, given(dtype))
    assert count(traced) == [1, 0], traced.lines
    assert "4 chunks" in traced.lines[0] or "chunks of 2 rows" in traced.lines[0]
    eager = outcome(fn, given(dtype))
    exact = outcome(fn, [each.double() for each in given(dtype)])
    assert [each.dtype for each in found] == [each.dtype for each in eager]
    assert distance(found, exact) <= 1.5 * distance(eager, exact) + 1e-7


@pytest.mark.parametrize("chunks", [1, 2, 3, 7, 10, 99])
def test_numbers_of_chunks(chunks: int) -> None:
    found, traced = compiled(SPELLINGS["a layer"], given(), chunks)
    torch.testing.assert_close(found, outcome(SPELLINGS["a layer"], given()))
    assert count(traced)[0] == (chunks > 1)


def test_all_labels_are_ignored() -> None:
    labels = torch.full((ROWS,), -100)
    found, traced = compiled(SPELLINGS["a layer"], given(), labels=labels)
    assert count(traced)[0] == 1
    torch.testing.assert_close(found, outcome(SPELLINGS["a layer"], given(), labels), equal_nan=True)


LEFT: dict[str, tuple[Write, str]] = {
    "a loss for each row": (
        lambda x, w, b, y: F.cross_entropy(F.linear(x, w), y, reduction="none").sum(),
        "a loss of its own",
    ),
    "weights of classes": (lambda x, w, b, y: F.cross_entropy(F.linear(x, w), y, weight=b.detach().exp()), "weights"),
    "probabilities": (
        lambda x, w, b, y: F.cross_entropy(F.linear(x, w), w[:ROWS, :1].expand(-1, CLASSES)),
        "one class",
    ),
    "no layer": (lambda x, w, b, y: F.cross_entropy(x.repeat(1, 9), y), "linear layer"),
    "a cap": (lambda x, w, b, y: F.cross_entropy(F.linear(x, w).tanh() * 30, y), "`mul`"),
    "one class before an ellipsis": (
        lambda x, w, b, y: F.cross_entropy(F.linear(x.view(5, 2, SIZE), w[:2])[:, :, 0, ...], y[:5].clamp(0, 1)),
        "classes are left out",
    ),
    "fewer classes": (lambda x, w, b, y: F.cross_entropy(F.linear(x, w)[:, :49], y.clamp(max=48)), "across classes"),
}


@pytest.mark.parametrize("name", list(LEFT))
def test_left_as_written(name: str) -> None:
    fn, reason = LEFT[name]
    found, traced = compiled(fn, given())
    torch.testing.assert_close(found, outcome(fn, given()))
    assert count(traced)[0] == 0
    assert any(reason in line and __file__ in line for line in traced.lines), traced.lines


def test_logits_that_are_returned_too() -> None:
    def fn(x: Any, w: Any, y: Any) -> Any:
        logits = F.linear(x, w)
        return F.cross_entropy(logits, y), logits

    x, w, _ = given()
    traced = Traced(LossPlan(4))
    found = torchdynamo.compile(fn, backend=traced)(x, w, LABELS)
    torch.testing.assert_close(found, fn(x, w, LABELS))
    assert "used a second time, or returned" in traced.lines[0]


def test_a_weight_that_is_written_to_before_the_loss() -> None:
    def fn(x: Any, w: Any, b: Any, y: Any) -> Any:
        logits = F.linear(x, w)
        with torch.no_grad():
            b.mul_(2)
        return F.cross_entropy(logits, y)

    traced = Traced(LossPlan(4))
    x, w, b = given()
    found = torchdynamo.compile(fn, backend=traced)(x, w, b, LABELS)
    torch.testing.assert_close(found, F.cross_entropy(F.linear(x, w), LABELS))
    assert "written to" in traced.lines[0] or "grad mode" in traced.lines[0]


def test_no_gradients() -> None:
    x, w, b = given()
    traced = Traced(LossPlan(4))
    with torch.no_grad():
        found = torchdynamo.compile(SPELLINGS["a layer"], backend=traced)(x, w, b, LABELS)
    torch.testing.assert_close(found, F.cross_entropy(F.linear(x, w, b), LABELS))
    assert count(traced) == [1]


def test_backward_twice_and_second_derivatives() -> None:
    fn = SPELLINGS["a layer"]

    def grads(run: Write) -> Tensors:
        x, w, b = (each.requires_grad_() for each in given())
        loss = run(x, w, b, LABELS)
        loss.backward(retain_graph=True)
        loss.backward()
        assert w.grad is not None
        (grad,) = torch.autograd.grad(run(x, w, b, LABELS), x, create_graph=True)
        return [w.grad, *torch.autograd.grad(grad.square().sum(), [x, w])]

    torchdynamo.reset()
    torch.testing.assert_close(grads(torchdynamo.compile(fn, backend=Traced(LossPlan(4)))), grads(fn))


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_row_that_is_ignored_has_the_nan_of_eager(value: float) -> None:
    x, w, b = given()
    b[5] = value
    found, traced = compiled(SPELLINGS["a layer"], [x, w, b])
    assert count(traced)[0] == 1
    torch.testing.assert_close(found, outcome(SPELLINGS["a layer"], [x, w, b]), equal_nan=True)


# ---- backend "inductor" ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"loss_chunks": 4}, {"loss_bytes": 3 * CLASSES * 4}])
def test_inductor(options: dict[str, Any]) -> None:
    torchdynamo.reset()
    fn = SPELLINGS["two dimensions of rows"]
    run = torchdynamo.compile(fn, backend="inductor", options=options)
    torch.testing.assert_close(outcome(run, given()), outcome(fn, given()))
    with pytest.raises(IndexError):
        run(*given(), LABELS + 40)


# ---- on a GPU, whose rows of logits a kernel of ours turns into gradients -------------------------------------------
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def many(dtype: torch.dtype, classes: int) -> tuple[Tensors, torch.Tensor]:
    """Rows, a weight and a bias on a GPU, and labels, some of which are ignored."""
    torch.manual_seed(0)
    tensors = [torch.randn(sizes, device="cuda").to(dtype) for sizes in ((300, 64), (classes, 64), (classes,))]
    labels = torch.randint(0, classes, (300,), device="cuda")
    labels[::7] = -100
    return tensors, labels


@needs_gpu
@pytest.mark.parametrize("classes", [5, 4096, 5003])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ["a layer", "a module", "a sum", "a frozen weight", "frozen rows"])
def test_on_a_gpu(name: str, dtype: torch.dtype, classes: int) -> None:
    fn, (tensors, labels) = SPELLINGS[name], many(dtype, classes)
    found, traced = compiled(fn, tensors, labels=labels)
    assert count(traced) == [1, 0], traced.lines
    eager = outcome(fn, tensors, labels)
    exact = outcome(fn, [each.double() for each in tensors], labels)
    for one, two, three in zip(found, eager, exact, strict=True):
        assert one.dtype == two.dtype
        assert distance([one], [three]) <= 1.5 * distance([two], [three]) + 3e-7 * float(three.abs().max())


@needs_gpu
@pytest.mark.parametrize("value", [-float("inf"), float("inf"), float("nan")])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_classes_that_are_ruled_out_on_a_gpu(value: float, smoothing: float) -> None:
    (x, w, b), labels = many(torch.float32, 5003)
    b[:4500] = value
    labels = torch.where(labels < 0, labels, labels % 503 + 4500)

    def fn(x: Any, w: Any, b: Any, y: Any) -> Any:
        return F.cross_entropy(F.linear(x, w, b), y, label_smoothing=smoothing)

    found, traced = compiled(fn, [x, w, b], labels=labels)
    assert count(traced) == [1, 0]
    torch.testing.assert_close(found, outcome(fn, [x, w, b], labels), equal_nan=True, atol=1e-5, rtol=1e-3)


@needs_gpu
def test_inductor_on_a_gpu() -> None:
    torchdynamo.reset()
    fn, (tensors, labels) = SPELLINGS["a layer"], many(torch.bfloat16, 5003)
    run = torchdynamo.compile(fn, backend="inductor", options={"loss_chunks": 3})
    torch.testing.assert_close(outcome(run, tensors, labels), outcome(fn, tensors, labels), atol=1e-2, rtol=2e-2)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_labels_that_eager_refuses(fullgraph: bool) -> None:
    torchdynamo.reset()
    run = torchdynamo.compile(SPELLINGS["a layer"], backend="inductor", fullgraph=fullgraph)
    messages = "expected (target dtype to be Long or Byte|scalar type Long|labels of torch.int64)"
    with pytest.raises(RuntimeError, match=messages):
        run(*given(), LABELS.int())


def test_explain_tells() -> None:
    report = torchdynamo.explain(SPELLINGS["a layer"], backend="inductor", options={"loss_chunks": "auto"})(
        *given(), LABELS
    )
    assert "loss at" in report.rewrites[0]
    assert "logits are small" in report.rewrites[0]


@pytest.mark.parametrize("options", [{"loss_chunks": 0}, {"loss_chunks": "many"}, {"loss_bytes": "1 GB"}])
def test_a_choice_that_there_is_not(options: dict[str, Any]) -> None:
    with pytest.raises(UnknownSetting, match="loss_"):
        torchdynamo.compile(lambda x: x + 1, backend="inductor", options=options)


@pytest.mark.parametrize(
    ("plan", "rows"),
    [
        (LossPlan(), 128),
        (LossPlan(8), 128),
        (LossPlan(None, 2**25), 64),
        (LossPlan(3), 342),
    ],
)
def test_how_many_rows_are_computed_at_once(plan: LossPlan, rows: int) -> None:
    """A vocabulary of 128k, with rows of 256 numbers: 512 MiB of logits, 128 MiB of weight."""
    assert plan.rows_at_once(1024, 2**17 * 4, 2**17 * 256 * 4) == rows
    assert LossPlan().rows_at_once(8192, 2**18, 2**28, "cuda") == 2048
    assert LossPlan().rows_at_once(4095, 2**18, 2**28, "cuda") == 4095
    assert plan.rows_at_once(4, 100, 100) == (4 if plan.chunks is None else -(-4 // min(plan.chunks, 4)))

"""Operators that tracers take apart: under AOTAutograd they round as in eager, and under Inductor they are right."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pictures import assert_alike
from torch.utils.checkpoint import checkpoint
from training import compiled

import torchdynamo
from torchdynamo.errors import TorchDynamoWarning
from torchdynamo.graph.decompositions import by_pairs, multilabel_margin_loss

Loss = Callable[[torch.Tensor], torch.Tensor]
GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.randn(2, 3, 17, 23, generator=GENERATOR)
ROWS = torch.randn(33, 20, generator=GENERATOR)
CLASSES = torch.randint(0, 20, (33,), generator=GENERATOR)
SETS = torch.full((33, 20), -1)
SETS[:, :3] = torch.randint(0, 20, (33, 3), generator=GENERATOR)
SETS[5:9, 0] = -1

LOSSES: dict[str, tuple[torch.Tensor, Loss]] = {
    "multi_margin": (ROWS, lambda x: F.multi_margin_loss(x, CLASSES)),
    "multi_margin_squares": (ROWS, lambda x: F.multi_margin_loss(x, CLASSES, p=2, margin=0.3, reduction="none")),
    "multilabel_margin": (ROWS, lambda x: F.multilabel_margin_loss(x, SETS)),
    "bilinear": (IMAGES, lambda x: F.interpolate(x, (9, 40), mode="bilinear")),
    "bicubic": (IMAGES, lambda x: F.interpolate(x, scale_factor=2.3, mode="bicubic", align_corners=True)),
    "linear": (IMAGES[0], lambda x: F.interpolate(x, 31, mode="linear")),
    "trilinear": (IMAGES[None], lambda x: F.interpolate(x, (2, 5, 40), mode="trilinear")),
    "dropout_of_halves": (ROWS.bfloat16(), lambda x: F.dropout(x, 0.3)),
    "dropout_of_a_transpose": (IMAGES, lambda x: F.dropout(x.transpose(1, 2) * 2, 0.3)),
    "dropout_in_place": (IMAGES, lambda x: F.dropout(x.transpose(1, 2) * 2, 0.3, inplace=True)),
    "alpha_dropout": (IMAGES, lambda x: F.alpha_dropout(x.transpose(1, 2) * 2, 0.3, training=True)),
    "drawn_in_place": (ROWS, lambda x: x * torch.empty_like(x.t()).bernoulli_(0.3).t()),
    "attention_with_dropout": (IMAGES, lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.3)),
    "in_a_checkpoint": (ROWS.bfloat16(), lambda x: checkpoint(lambda x: F.dropout(x.sin()), x, use_reentrant=False)),
}


# Those that add in an order that differs from run to run are not among these.
ON_A_GPU: dict[str, tuple[torch.Tensor, Loss]] = {
    **{name: LOSSES[name] for name in LOSSES if "drop" in name or "drawn" in name or "checkpoint" in name},
    "batch_norm": (IMAGES, lambda x: F.batch_norm(x, None, None, training=True)),
    "batch_norm_of_halves": (IMAGES.half(), lambda x: F.batch_norm(x, None, None, training=True)),
    "multi_margin": (ROWS, lambda x: F.multi_margin_loss(x, CLASSES.to(x.device))),
    "multilabel_margin": (ROWS, lambda x: F.multilabel_margin_loss(x, SETS.to(x.device))),
    "layer_norm": (ROWS, lambda x: F.layer_norm(x, (20,))),
}


def with_gradient(loss: Loss, given: torch.Tensor) -> Any:
    torch.manual_seed(3)
    x = given.clone().requires_grad_()
    result = loss(x)
    result.sin().sum().backward()
    return result.detach(), x.grad


@pytest.mark.parametrize("name", LOSSES)
def test_rounds_as_in_eager(name: str) -> None:
    given, loss = LOSSES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", TorchDynamoWarning)
        assert_alike(with_gradient(loss, given), with_gradient(compiled("aot_eager")(loss), given))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_rounds_as_in_eager_on_a_gpu(name: str) -> None:
    given, loss = ON_A_GPU[name]
    there = given.cuda()
    assert_alike(with_gradient(loss, there), with_gradient(compiled("aot_eager")(loss), there))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("one", [False, True])
def test_margins_of_sets(one: bool, reduction: str) -> None:
    """Of targets that end before the row does."""
    given, target = (ROWS[0].double(), SETS[0]) if one else (ROWS.double(), SETS)
    expected = with_gradient(lambda x: F.multilabel_margin_loss(x, target, reduction=reduction), given)
    for fn, how in ((multilabel_margin_loss, reduction), (by_pairs, ["none", "mean", "sum"].index(reduction))):
        actual = with_gradient(lambda x, fn=fn, how=how: fn(x, target, reduction=how), given)
        torch.testing.assert_close(actual, expected)


def test_margins_of_sets_where_operators_are_taken_apart() -> None:
    given, loss = LOSSES["multilabel_margin"]
    apart = compiled("aot_eager_decomp_partition")(loss)
    torch.testing.assert_close(with_gradient(apart, given), with_gradient(loss, given))
    varying = torchdynamo.compile(lambda x, y: F.multilabel_margin_loss(x, y), backend="aot_eager", dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TorchDynamoWarning)
        for n in (7, 12):
            expected = with_gradient(lambda x, n=n: F.multilabel_margin_loss(x, SETS[:n]), given[:n])
            actual = with_gradient(lambda x, n=n: varying(x, SETS[:n]), given[:n])
            torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_a_number_that_varies_may_be_named(backend: str, mode: str) -> None:
    """What is not known while a graph is traced is looked for among arguments by name, too."""

    def resized(x: torch.Tensor, size: int) -> torch.Tensor:
        return F.interpolate(x, scale_factor=size / x.shape[-1], mode=mode, recompute_scale_factor=True)

    with warnings.catch_warnings():
        warnings.simplefilter("error", TorchDynamoWarning)
        run = torchdynamo.compile(resized, backend=backend)
        for size in (30, 46, 11, 69):
            torch.testing.assert_close(run(IMAGES, size), resized(IMAGES, size))

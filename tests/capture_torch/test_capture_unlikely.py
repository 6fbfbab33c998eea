"""Branches of which one way is seldom gone: capture takes the other, and a call that goes it runs as written."""

from __future__ import annotations

import pickle
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo.errors import Unsupported

GOOD = torch.eye(3) * 2
BAD = -GOOD
NAN = GOOD * torch.nan


def factorized(x: Any) -> Any:
    """Tries again with more on the diagonal, as libraries for Gaussian processes do."""
    factor, info = torch.linalg.cholesky_ex(x)
    if not torch.any(info):
        return factor
    for power in range(3):
        factor, info = torch.linalg.cholesky_ex(x + torch.eye(3) * 10**power)
        if not torch.any(info):
            return factor * 2
    raise ValueError("not positive definite")


def inverted(x: Any) -> Any:
    inverse, info = torch.linalg.inv_ex(x)
    if info.item() > 0:
        inverse = torch.zeros_like(x)
    return inverse + 1


def warned(x: Any) -> Any:
    variance = x.diagonal()
    if variance.lt(1e-3).any():
        warnings.warn(f"{3} variances are small", UserWarning, stacklevel=2)
        variance = variance.clamp_min(1e-3)
    return variance.sqrt()


def filled_in(x: Any) -> Any:
    if torch.isnan(x).any():
        x = torch.where(x.isnan(), torch.zeros_like(x), x)
    if not x.isfinite().all():
        x = x.clamp(-1, 1)
    return x * 2


def padded(x: Any) -> Any:
    padding = x.eq(0)
    if not padding.any():
        padding = None
    y = x.softmax(-1)
    return y if padding is None else y.masked_fill(padding, 9.0)


def equal_to_itself(x: Any) -> Any:
    """Computes one thing twice, and asks whether it is the same."""
    first, second = (x - x.mean()) / x.exp(), (x - x.mean()) / x.exp()
    return first * 2 if torch.equal(first, second) else second * 3


def differs_in_size(x: Any) -> Any:
    return x * 2 if torch.equal(x, x[:2]) else x * 3


CASES: list[tuple[Callable[..., Any], torch.Tensor, torch.Tensor | None]] = [
    (factorized, GOOD, BAD),
    (inverted, GOOD, GOOD * 0),
    (warned, GOOD, BAD),
    (filled_in, GOOD, NAN),
    (filled_in, GOOD, GOOD / 0),
    (padded, GOOD + 1, GOOD),
    (padded, GOOD, GOOD + 1),
    (equal_to_itself, GOOD, NAN),
    (differs_in_size, GOOD, None),
]


def outcome(fn: Callable[..., Any], x: torch.Tensor) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        return fn(x), [f"{each.category.__name__} {each.message}" for each in said]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("fn", "usual", "unusual"), CASES)
def test_both_ways_are_those_of_eager(fn: Any, usual: Any, unusual: Any, whole: bool) -> None:
    graphs: list[Any] = []

    def counting(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = torchdynamo.compile(fn, backend=counting, fullgraph=whole)
    for x in [usual, usual * 3, unusual, usual] if unusual is not None else [usual]:
        (wanted, said), (got, heard) = outcome(fn, x), outcome(compiled, x)
        assert torch.equal(wanted.nan_to_num(7), got.nan_to_num(7)) and said == heard
    assert len(graphs) == 1 or not whole


def test_what_nothing_is_known_of_ends_the_graph() -> None:
    def unlike(x: Any, y: Any) -> Any:
        return x * 2 if torch.equal(x + 1, y + 1) else x * 3

    with pytest.raises(Unsupported):
        torchdynamo.compile(unlike, backend="eager", fullgraph=True)(GOOD, GOOD.clone())
    torchdynamo.reset()
    compiled = torchdynamo.compile(unlike, backend="eager")
    assert all(torch.equal(compiled(GOOD, y), unlike(GOOD, y)) for y in (GOOD.clone(), BAD))


def test_a_module_is_moved_to_where_it_is() -> None:
    layer = torch.nn.Linear(3, 3)
    layer.register_buffer("trained", torch.tensor(True))

    def moved(x: Any) -> Any:
        layer.to(x)
        if not layer.trained:
            raise RuntimeError("not trained")
        return layer(x)

    assert torch.equal(torchdynamo.compile(moved, backend="eager", fullgraph=True)(GOOD), layer(GOOD))


@pytest.mark.parametrize("arguments", [{}, {"method": "cholesky", "left": True, "size": 3}, (1, "a", None)])
def test_keys_made_by_pickle(arguments: Any) -> None:
    def keyed(x: Any) -> Any:
        return x + 1, pickle.dumps(arguments)

    result, key = torchdynamo.compile(keyed, backend="eager", fullgraph=True)(GOOD)
    assert torch.equal(result, GOOD + 1) and key == pickle.dumps(arguments)


def test_pickles_that_tell_what_is_one_object() -> None:
    def keyed(x: Any) -> Any:
        return x + 1, pickle.dumps({"a": "b", "b": "a"})

    with pytest.raises(Unsupported):
        torchdynamo.compile(keyed, backend="eager", fullgraph=True)(GOOD)


switches = types.ModuleType("switches")
switches.inner = types.ModuleType("switches.inner")  # type: ignore[attr-defined]
switches.inner.FAST = False


def test_a_switch_in_a_module_decides_after_a_test_of_a_number() -> None:
    """What the number says makes no difference, since both ways lead to the same place."""

    def chosen(x: Any, lengths: Any) -> Any:
        longest = bool(lengths.max() > 3)
        if longest and switches.inner.FAST and x.is_floating_point():
            return x.relu()
        return x * 2

    graphs: list[Any] = []

    def counting(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = torchdynamo.compile(chosen, backend=counting, fullgraph=True)
    for lengths in (torch.tensor([1, 2]), torch.tensor([5, 2])):
        assert torch.equal(compiled(GOOD, lengths), GOOD * 2)
    assert len(graphs) == 1
    switches.inner.FAST = True
    try:
        for lengths in (torch.tensor([1, 2]), torch.tensor([5, 2])):
            assert torch.equal(compiled(BAD, lengths), chosen(BAD, lengths))
    finally:
        switches.inner.FAST = False


def test_tensors_of_unknown_sizes_are_taken_to_have_elements() -> None:
    attention = torch.nn.MultiheadAttention(4, 2, batch_first=True).eval()

    def padded(rows: Any, batch: Any) -> Any:
        sizes = torch.bincount(batch, minlength=1)
        count, longest = int(batch.max()) + 1, int(sizes.max())
        filled = torch.zeros(count * longest, 4)
        filled = filled.index_copy(0, torch.arange(rows.shape[0]), rows).view(count, longest, 4)
        return attention(filled, filled, filled, need_weights=False)[0].sum()

    rows = torch.arange(24.0).reshape(6, 4).sin()
    with torch.no_grad():
        compiled = torchdynamo.compile(padded, backend="eager", fullgraph=True)
        for batch in (
            torch.tensor([0, 0, 0, 1, 1, 1]),
            torch.tensor([0, 0, 0, 0, 1, 1]),
            torch.tensor([0, 1, 2, 2, 2, 2]),
        ):
            assert torch.allclose(compiled(rows, batch), padded(rows, batch))


def test_a_question_to_no_matrices_raises_in_the_program() -> None:
    def asked(x: Any) -> Any:
        factor, info = torch.linalg.cholesky_ex(x)
        try:
            return factor if info.max() > 0 else factor * 2
        except RuntimeError:
            return x - 1

    none = GOOD.expand(0, 3, 3)
    assert torchdynamo.compile(asked, backend="eager")(none).shape == asked(none).shape

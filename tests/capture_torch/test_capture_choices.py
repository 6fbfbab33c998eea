"""What Python asks of tensors that needs no value: max and min of numbers in tensors, whether there is a history."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import torchdynamo
from torchdynamo.errors import Unsupported


def extremes(x: Tensor) -> Any:
    return x * max(x.sum(), x.max()), min(x.mean(), x.sum(), x[0] * 1)


def greatest_norm(x: Tensor) -> Tensor:
    best = x[0].norm()
    for row in x.view(2, 2):
        best = max(best, row.norm())
    return x / best


def history(x: Tensor) -> Any:
    y = x * 2
    if y.grad_fn is not None and y.grad_fn is y.grad_fn and x.grad_fn is None and y.detach().grad_fn is None:
        y = y + 1
    return y.sum(), bool(y.grad_fn), y.grad_fn == y.grad_fn, isinstance(y.grad_fn, torch.autograd.graph.Node)


def history_in_place(x: Tensor) -> Any:
    y = x * 2
    before = y.grad_fn
    y.add_(1)
    return y + 1, before is y.grad_fn, type(before).__name__, type(y.grad_fn).__name__


def one_of_two(x: Tensor) -> Any:
    """Return a view of the caller's tensor, and write to it."""
    greater = max(x[0], x[1])
    greater.add_(1)
    return greater


def told_by_identity(x: Tensor) -> Any:
    total, most = x.sum(), x.max()
    return x + 1, max(total, most) is total


def told_by_writing(x: Tensor) -> Any:
    total, most = x.sum(), x.max()
    greater = max(total, most)
    greater.add_(1)
    return total, most, greater


def told_by_sharing(x: Tensor) -> Any:
    total, most = x.sum(), x.max()
    return [max(total, most), min(total, most), max(most, total)]


def told_by_gradients(x: Tensor) -> Any:
    return max((x * 2).sum(), x.max()) * x


def with_numbers(x: Tensor) -> Any:
    return max(x.sum(), 1), min(3, x.max())


def more_of_history(x: Tensor) -> Any:
    y = x * 2
    return y + 1, len(y.grad_fn.next_functions), y.grad_fn.name(), hasattr(y.grad_fn, "no such")  # type: ignore[union-attr]


def history_that_leaves(x: Tensor) -> Any:
    y = x * 2
    return y, type(y.grad_fn).__name__, [y.grad_fn][0] is y.grad_fn


def history_of_views(x: Tensor) -> Any:
    y = x * 2
    view, other = y[0], y[1:]
    before = type(view.grad_fn).__name__
    y.add_(1)
    return y + 1, before, type(view.grad_fn).__name__, type(other.grad_fn).__name__, view.grad_fn is not None


def without_values(x: Tensor) -> Any:
    return error_of(lambda: max(x[0].to("meta"), x[1].to("meta")))


def in_layers(x: Tensor) -> Any:
    return error_of(lambda: torch.func.vmap(lambda each: min(each, each * 2))(x))


def error_of(fn: Any) -> Any:
    try:
        return fn()
    except RuntimeError as error:
        return str(error)


WHOLE = [extremes, greatest_norm, history, history_in_place]
OTHERS = [one_of_two, told_by_identity, told_by_writing, told_by_sharing, told_by_gradients, with_numbers]
OTHERS += [more_of_history, history_that_leaves, history_of_views, without_values, in_layers]
NUMBERS = [[1.0, 2.0, 3.0, 4.0], [-1.0, -2.0, -3.0, -4.0], [float("nan"), 1.0, 2.0, 3.0], [1.0, float("nan"), 2.0, 0.0]]


def seen(run: Any, numbers: list[float], grad: bool) -> Any:
    """Return what a call gives, which results share memory, and the gradient."""
    x = torch.tensor(numbers, requires_grad=grad)
    result = run(x)
    results = [*result] if isinstance(result, (tuple, list)) else [result]
    tensors = [each for each in results if isinstance(each, Tensor)]
    shared = [[one is other for other in tensors] for one in tensors]
    if grad and any(each.requires_grad for each in tensors):
        sum(each.sum() for each in tensors if each.requires_grad).backward()  # type: ignore[union-attr]
    found = [each.detach() if isinstance(each, Tensor) else each for each in (*results, x)]
    return repr(found), shared, repr(x.grad)


@pytest.mark.parametrize("program", [*WHOLE, *OTHERS], ids=lambda program: program.__name__)
def test_as_eager(program: Any) -> None:
    grad = "history" in program.__name__ or program is told_by_gradients
    compiled = torchdynamo.compile(program, backend="eager")
    for numbers in NUMBERS:
        assert seen(compiled, numbers, grad) == seen(program, numbers, grad)


@pytest.mark.parametrize("program", WHOLE, ids=lambda program: program.__name__)
def test_whole(program: Any) -> None:
    grad = "history" in program.__name__
    compiled = torchdynamo.compile(program, backend="aot_eager", fullgraph=True)
    for numbers in NUMBERS:
        assert seen(compiled, numbers, grad) == seen(program, numbers, grad)


@pytest.mark.parametrize("program", [told_by_writing, told_by_sharing, told_by_gradients, with_numbers])
def test_what_tells_a_copy_is_refused(program: Any) -> None:
    with pytest.raises(Unsupported):
        torchdynamo.compile(program, backend="eager", fullgraph=True)(
            torch.ones(4, requires_grad=program is told_by_gradients)
        )

"""Graphs compiled by AOTAutograd that are called without its wrappers: right in all that is rare, and little Python."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch

import torchdynamo

Graph = Callable[[torch.Tensor, torch.Tensor], Any]
Use = Callable[[Any, torch.Tensor, torch.Tensor], Any]
BACKENDS = ["aot_eager", "inductor"]

SHORT: dict[str, Graph] = {
    "one": lambda x, w: (x @ w).relu(),
    "two": lambda x, w: ((x @ w).sin(), w.cos()),
    "one_constant": lambda x, w: ((x @ w).sin(), x + 1),
    "a_number": lambda x, w: ((x * x.size(0)) @ w).exp(),
    "indices": lambda x, w: (x @ w).max(1),
    "a_view_of_its_own": lambda x, w: (x @ w).sin().t(),
}
WRITING: dict[str, Graph] = {
    "an_input_is_written": lambda x, w: (x.mul_(2.0) @ w).sin(),
    "and_returned_otherwise": lambda x, w: ((x.add_(1.0) @ w).sin(), x * 2),
}
LONG: dict[str, Graph] = {
    "a_view": lambda x, w: (x @ w, w.t()),
    "an_input_lies_otherwise": lambda x, w: x.unsqueeze_(0) + w.sum(),
}


def first(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result[0]


def back(loss: Any, *given: Any, **options: Any) -> None:
    loss.backward(*given, **options)


def backward(result: Any, x: torch.Tensor, w: torch.Tensor) -> Any:
    back(first(result).square().sum())
    return w.grad


def kept(result: Any, x: torch.Tensor, w: torch.Tensor) -> Any:
    loss = first(result).square().sum()
    back(loss, retain_graph=True)
    back(loss)
    return w.grad


def twice(result: Any, x: torch.Tensor, w: torch.Tensor) -> Any:
    (grad,) = torch.autograd.grad(first(result).square().sum(), w, create_graph=True)
    back(grad.square().sum())
    return grad, w.grad


def of_an_expanded_gradient(result: Any, x: torch.Tensor, w: torch.Tensor) -> Any:
    back(first(result).sum())
    return w.grad


def of_a_transposed_gradient(result: Any, x: torch.Tensor, w: torch.Tensor) -> Any:
    back(first(result), torch.arange(float(first(result).numel())).reshape(first(result).t().shape).t())
    return w.grad


def after_a_change(result: Any, x: torch.Tensor, w: torch.Tensor) -> Any:
    with torch.no_grad():
        w.add_(1)
    return raised(lambda: back(first(result).sum()))


def again_when_freed(result: Any, x: torch.Tensor, w: torch.Tensor) -> Any:
    loss = first(result).sum()
    back(loss)
    return raised(lambda: back(loss))


def of_the_other(result: Any, x: torch.Tensor, w: torch.Tensor) -> Any:
    if isinstance(result, torch.Tensor) or not result[1].requires_grad:
        return None if isinstance(result, torch.Tensor) else result[1].requires_grad
    back(result[1].sum())
    return w.grad


def with_a_hook(result: Any, x: torch.Tensor, w: torch.Tensor) -> Any:
    put_hook: Any = w.register_hook
    put_hook(lambda grad: grad * 2)
    back(first(result).square().sum())
    return w.grad


def raised(call: Callable[[], Any]) -> type[BaseException] | None:
    try:
        call()
    except Exception as error:
        return type(error)
    return None


USES: list[Use] = [backward, kept, twice, of_an_expanded_gradient, of_the_other, with_a_hook, again_when_freed]


def run(graph: Graph, use: Use, rows: int) -> Any:
    x = torch.linspace(-1, 1, rows * 4).reshape(rows, 4)
    w = torch.linspace(-2, 1, 12).reshape(4, 3).requires_grad_()
    result = graph(x, w)
    return result, use(result, x, w)


@pytest.mark.parametrize("use", [*USES, of_a_transposed_gradient], ids=lambda use: use.__name__)
@pytest.mark.parametrize("name", SHORT)
def test_as_eager(name: str, use: Use) -> None:
    compiled = torchdynamo.compile(SHORT[name], backend="aot_eager")
    for rows in (5, 5, 6, 7, 7):
        assert_equal(run(compiled, use, rows), run(SHORT[name], use, rows), exact=use is not twice)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("use", [backward, kept, of_the_other, with_a_hook, again_when_freed])
@pytest.mark.parametrize("name", WRITING)
def test_writes_as_eager(name: str, use: Use, backend: str) -> None:
    def run_and_look(graph: Graph) -> Any:
        x = torch.linspace(-1, 1, 20).reshape(5, 4)
        w = torch.linspace(-2, 1, 12).reshape(4, 3).requires_grad_()
        result = graph(x, w)
        return result, use(result, x, w), x, x._version

    compiled = torchdynamo.compile(WRITING[name], backend=backend)
    for _ in range(3):
        assert_equal(run_and_look(compiled), run_and_look(WRITING[name]), exact=backend == "aot_eager")


def test_what_was_saved_and_has_changed_is_told() -> None:
    compiled = torchdynamo.compile(lambda x, w: (x * w.sum()).sin() * w.prod(), backend="aot_eager")
    for _ in range(3):
        assert run(compiled, after_a_change, 4)[1] is RuntimeError


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.long)])
def test_two_layers_train(backend: str) -> None:
    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((x @ w).tanh() @ w.t()).square().mean()

    compiled = torchdynamo.compile(loss, backend=backend)
    for use in (backward, kept, twice):
        for rows in (3, 3, 5, 5):
            assert_equal(
                run(compiled, use, rows), run(loss, use, rows), exact=backend == "aot_eager" and use is not twice
            )


@pytest.mark.parametrize(
    ("name", "short"), [(name, True) for name in SHORT | WRITING] + [(name, False) for name in LONG]
)
def test_which_are_called_so(name: str, short: bool) -> None:
    compiled = torchdynamo.compile((SHORT | WRITING | LONG)[name], backend="aot_eager")
    for _ in range(3):
        run(compiled, backward, 5)
    assert ("runtime_wrapper" not in python_calls(compiled)) == short


def test_under_a_transform() -> None:
    """A compiled graph that was called before is right where torch.func looks on."""
    compiled = torchdynamo.compile(SHORT["one"], backend="aot_eager")
    for _ in range(2):
        run(compiled, backward, 5)
    x, w = torch.ones(5, 4), torch.ones(4, 3)
    found = torch.func.grad(lambda w: compiled(x, w).sum())(w)
    assert torch.equal(found, torch.func.grad(lambda w: SHORT["one"](x, w).sum())(w))


def python_calls(graph: Graph) -> list[str]:
    """Return the names of the functions written in Python that a call goes through."""
    x, w = torch.ones(5, 4), torch.ones(4, 3, requires_grad=True)
    names: list[str] = []

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        graph(x, w)
    finally:
        sys.setprofile(None)
    return names


def assert_equal(found: Any, wanted: Any, exact: bool = True) -> None:
    if isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(found, wanted, rtol=0.0 if exact else 1e-5, atol=0.0 if exact else 1e-4)
        assert found.requires_grad == wanted.requires_grad and found.stride() == wanted.stride()
    elif isinstance(wanted, tuple):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_equal(one, other, exact)
    else:
        assert found == wanted

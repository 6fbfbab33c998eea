"""Backwards of custom functions that switch gradients on, or compute some: captured, with derivatives as in eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchdynamo


def product(ctx: Any, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    ctx.save_for_backward(w, x)
    return w @ x


def product_of_sine(ctx: Any, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    ctx.save_for_backward(w, x)
    return w.sin() @ x


class Bilinear(torch.autograd.Function):
    """Has its derivative computed by autograd, of copies."""

    @staticmethod
    def forward(ctx: Any, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(w, x)
        return (w * w) @ x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        saved = ctx.saved_tensors
        copies = [each.detach().requires_grad_(each.requires_grad) for each in saved]
        with torch.enable_grad():
            loss = (grad * ((copies[0] * copies[0]) @ copies[1])).sum()
            wanted = [each for each in copies if each.requires_grad]
            found = list(torch.autograd.grad(loss, wanted, allow_unused=True))
        first, second = (found.pop(0) if each.requires_grad else None for each in saved)
        return first * 2, second


class AsksForTheMode(torch.autograd.Function):
    forward = staticmethod(product_of_sine)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        w, x = ctx.saved_tensors
        with torch.no_grad():
            factor = x.mean()
        return (grad @ x.t()) * w.cos() * (2 if torch.is_grad_enabled() else 1) * factor, None


class Calls(torch.autograd.Function):
    """Calls another such function where gradients are on."""

    forward = staticmethod(product)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        w, x = ctx.saved_tensors
        return AsksForTheMode.apply(grad, x.t()), w.t() @ grad


class AsksWhatItSaved(torch.autograd.Function):
    forward = staticmethod(product_of_sine)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        w, x = ctx.saved_tensors
        with torch.enable_grad():
            (found,) = torch.autograd.grad(w.sin().sum(), w)
        return (grad @ x.t()) * found, None


class AsksOfTheGradient(torch.autograd.Function):
    """Has another derivative where the gradient it is given has a history, and in another mode."""

    forward = staticmethod(product)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        w, x = ctx.saved_tensors
        factor = 1 if torch.is_grad_enabled() else 2
        return (grad @ x.t()) * factor, w.t() @ grad if (grad * 2).requires_grad else w.t() @ grad.detach() * 5


class AsksOfItsResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        made = w.exp() @ x
        ctx.save_for_backward(w, x, made)
        return made

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        w, x, made = ctx.saved_tensors
        return (grad @ x.t()) * w.exp() * (2 if made.is_leaf else 3), None


class RefusesTheMode(torch.autograd.Function):
    forward = staticmethod(product)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        if torch.is_grad_enabled():
            raise NotImplementedError("no second derivative")
        w, x = ctx.saved_tensors
        return grad @ x.t(), w.t() @ grad


def derivatives(fn: Any, function: Any, both: bool, second: bool) -> list[torch.Tensor | None]:
    w = torch.linspace(-1, 2, 12).view(3, 4).requires_grad_()
    x = torch.linspace(3, 1, 8).view(4, 2).requires_grad_(both)
    wanted = [w, x] if both else [w]
    loss = fn(function, w, x)
    found = [*torch.autograd.grad(loss, wanted, create_graph=second, allow_unused=True)]
    total = sum(each.cos().sum() for each in found if each is not None and each.requires_grad) if second else 0
    if isinstance(total, torch.Tensor) and total.requires_grad:
        found += torch.autograd.grad(total, wanted, allow_unused=True)
    return [loss.detach(), *found]


def program(function: Any, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = function.apply(w * 1.5, x).sin().sum()
    return result


def assert_alike(expected: list[torch.Tensor | None], got: list[torch.Tensor | None]) -> None:
    assert [each is None for each in expected] == [each is None for each in got]
    for one, other in zip(expected, got, strict=True):
        assert one is None or other is None or torch.allclose(one, other)


@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("both", [False, True], ids=["one", "both"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [Bilinear, AsksForTheMode])
def test_derivatives(function: Any, backend: str, both: bool, second: bool) -> None:
    compiled = torchdynamo.compile(program, backend=backend, fullgraph=True)
    assert_alike(derivatives(program, function, both, second), derivatives(compiled, function, both, second))


@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("function", [Calls, AsksWhatItSaved, AsksOfTheGradient, AsksOfItsResult])
def test_what_is_not_followed(function: Any, second: bool) -> None:
    compiled = torchdynamo.compile(program, backend="eager")
    assert_alike(derivatives(program, function, True, second), derivatives(compiled, function, True, second))


def test_a_history_that_only_the_gradient_has() -> None:
    def found(fn: Any, given: bool) -> list[torch.Tensor]:
        w, x = torch.ones(3, 4, requires_grad=True), torch.ones(4, 2, requires_grad=True)
        grads = torch.full((3, 2), 2.0, requires_grad=given)
        return [*torch.autograd.grad(fn(w, x), [w, x], grads, create_graph=True)]

    compiled = torchdynamo.compile(AsksOfTheGradient.apply, backend="eager")
    for given in (False, True):
        expected, got = found(AsksOfTheGradient.apply, given), found(compiled, given)
        assert_alike([*expected], [*got])
        assert [each.requires_grad for each in expected] == [each.requires_grad for each in got]


def test_a_backward_that_refuses_to_be_differentiated() -> None:
    compiled = torchdynamo.compile(program, backend="eager")
    assert_alike(derivatives(program, RefusesTheMode, True, False), derivatives(compiled, RefusesTheMode, True, False))
    with pytest.raises(NotImplementedError, match="no second derivative"):
        derivatives(compiled, RefusesTheMode, True, True)


def test_gradients_of_what_is_saved_end_the_graph() -> None:
    with pytest.raises(torchdynamo.exc.Unsupported, match="AsksWhatItSaved has a backward of its own"):
        derivatives(torchdynamo.compile(program, backend="eager", fullgraph=True), AsksWhatItSaved, True, False)


class OfTheClass(torch.autograd.Function):
    """Has methods of the class for both ways, which a subclass changes."""

    @classmethod
    def times(cls) -> int:
        return 3

    @classmethod
    def forward(cls, ctx: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        ctx.save_for_backward(x)
        return x**2 * cls.times()

    @classmethod
    def backward(cls, ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad * ctx.saved_tensors[0] * cls.times() * 2


class OfASubclass(OfTheClass):
    @classmethod
    def times(cls) -> int:
        return 5


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_methods_of_the_class_and_instances(backend: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return OfTheClass.apply(x) * OfASubclass.apply(x) + OfASubclass().apply(x)  # type: ignore[no-untyped-call]

    x = torch.randn(3, requires_grad=True)
    mine, theirs = torchdynamo.compile(fn, backend=backend, fullgraph=True)(x), fn(x)
    assert torch.equal(mine, theirs)
    assert torch.equal(*(torch.autograd.grad(each.sum(), x)[0] for each in (mine, theirs)))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_an_instance_that_leaves() -> None:
    def fn(x: torch.Tensor) -> Any:
        return x * 2, OfTheClass()  # type: ignore[no-untyped-call]

    assert type(torchdynamo.compile(fn, backend="eager")(torch.ones(3))[1]) is OfTheClass

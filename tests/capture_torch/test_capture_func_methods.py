"""Custom functions of autograd inside of torch.func: one operator each, whose methods PyTorch runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pictures import assert_alike
from torch.func import grad, jacrev, jvp, vmap

import torchdynamo

X = torch.arange(1.0, 4.0)
CALLED: list[int] = []


def made(**methods: Any) -> Any:
    """Make a custom function, of whose gradient one can tell that its own backward has given it."""
    own: dict[str, Any] = {
        "forward": lambda x: x.sin(),
        "setup_context": lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
        "backward": lambda ctx, grad: grad * ctx.saved_tensors[0].cos() * 7,
    }
    namespace = {name: staticmethod(method) for name, method in (own | methods).items()}
    return type("Custom", (torch.autograd.Function,), {**namespace, "generate_vmap_rule": True})


class Straight(torch.autograd.Function):
    """Round; the gradient passes through."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x.round()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
        return grad

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:  # type: ignore[override]
        return tangent * 5

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any) -> Any:  # type: ignore[override]
        return Straight.apply(x), in_dims[0]


CUSTOM = made()
WHOLE: dict[str, Callable[[Any], Any]] = {
    "grad": lambda x: grad(lambda y: CUSTOM.apply(y).sum())(x),
    "vmap": lambda x: vmap(CUSTOM.apply)(x),
    "vmap of grad": lambda x: vmap(grad(CUSTOM.apply))(x),
    "grad of vmap": lambda x: grad(lambda y: vmap(CUSTOM.apply)(y).sum())(x),
    "grad of grad": lambda x: grad(lambda y: grad(lambda z: CUSTOM.apply(z).sum())(y).sum())(x),
    "jacrev": lambda x: jacrev(CUSTOM.apply)(x),
    "a rule of its own for vmap": lambda x: vmap(grad(lambda a: Straight.apply(a) * a))(x),
    "a rule of its own for jvp": lambda x: jvp(Straight.apply, (x,), (x,)),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", WHOLE)
def test_agrees_with_eager(name: str, backend: str) -> None:
    fn = WHOLE[name]
    compiled = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    for x in (X, X * 1.4, X):
        torch.testing.assert_close(compiled(x), fn(x), rtol=1e-6 if backend == "inductor" else 0, atol=0)


def test_gradients_outside_of_the_layer() -> None:
    fn = torchdynamo.compile(lambda x: WHOLE["grad"](x) * x, backend="aot_eager", fullgraph=True)
    found = []
    for call in (fn, lambda x: WHOLE["grad"](x) * x):
        x = X.clone().requires_grad_()
        call(x).sum().backward()
        found.append(x.grad)
    assert_alike(*found)


def writes(x: Any) -> Any:
    x = x.clone()
    x.mul_(2)
    return x


def tells(x: Any) -> Any:
    CALLED.append(1)
    return x.sin()


@pytest.mark.parametrize("forward", [writes, tells], ids=lambda fn: fn.__name__)
def test_methods_that_do_more_than_compute(forward: Any) -> None:
    custom = made(forward=forward)

    def fn(x: Any) -> Any:
        return grad(lambda y: custom.apply(y).sum())(x)

    with pytest.raises(torchdynamo.exc.Unsupported, match=r"Custom\.apply"):
        torchdynamo.compile(fn, backend="eager", fullgraph=True)(X)
    compiled = torchdynamo.compile(fn, backend="eager")
    CALLED.clear()
    for _ in range(2):
        assert_alike(compiled(X), fn(X))
    assert len(CALLED) == (4 if forward is tells else 0)


def test_a_method_that_is_replaced() -> None:
    custom = made()
    compiled = torchdynamo.compile(lambda x: vmap(grad(custom.apply))(x), backend="aot_eager")
    compiled(X)
    custom.backward = staticmethod(lambda ctx, grad: grad * 100)
    assert_alike(compiled(X), torch.full_like(X, 100))

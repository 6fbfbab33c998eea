"""torch.func, forward-mode and over models: one graph, and eager's numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pictures import assert_alike
from torch import nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)

import torchdynamo
from torchdynamo import _native

X = torch.arange(6.0).reshape(2, 3) / 3
MODEL = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
PARAMETERS = dict(MODEL.named_parameters())
ENSEMBLE = [nn.Linear(3, 2) for _ in range(3)]
STACKED = stack_module_state(ENSEMBLE)  # type: ignore[arg-type]
BASE = copy.deepcopy(ENSEMBLE[0]).to("meta")


def cube(a: Any) -> Any:
    return (a**3).sum()


def through_model(a: Any) -> Any:
    return functional_call(MODEL, PARAMETERS, (a,))


CASES: dict[str, Callable[[Any], Any]] = {
    "vmap of what has numbers": lambda x: vmap(lambda a: (a * 3.14, 1 - a, a / 2, a**2, a < 2, a * True, a * 1j))(x),
    "vmap of vmap with numbers": lambda x: vmap(lambda a: vmap(lambda b: b * 2.5)(a))(x),
    "vmap of grad with numbers": lambda x: vmap(lambda a: grad(lambda b: cube(b * 2.5))(a))(x),
    "jvp": lambda x: jvp(torch.sin, (x,), (x,)),
    "jvp, aux": lambda x: jvp(lambda a: (a.sin(), a.cos()), (x,), (x,), has_aux=True),
    "jvp of two, of which one is not used": lambda x: jvp(lambda a, b: a * 2, (x, x), (x, x)),
    "jvp of what does not depend": lambda x: jvp(lambda a: torch.ones(2), (x,), (x,)),
    "vjp": lambda x: vjp(torch.sin, x)[1](x),
    "jacfwd": lambda x: jacfwd(torch.sin)(x[0]),
    "jacrev": lambda x: jacrev(lambda a: a**2)(x[0]),
    "jacfwd of one of two": lambda x: jacfwd(lambda a, b: a * b, argnums=1)(x[0], x[1]),
    "hessian": lambda x: hessian(cube)(x[0]),
    "forward over reverse": lambda x: jvp(grad(cube), (x,), (x,)),
    "reverse over forward": lambda x: jacrev(jacfwd(cube))(x[0]),
    "forward over forward": lambda x: jacfwd(jacfwd(cube))(x[0]),
    "value too": lambda x: grad_and_value(cube)(x),
    "each sample": lambda x: vmap(grad(lambda p, a: functional_call(MODEL, p, (a,)).sum()), (None, 0))(PARAMETERS, x),
    "an ensemble": lambda x: vmap(lambda p, b, a: functional_call(BASE, (p, b), (a,)), (0, 0, None))(*STACKED, x),
    "jacrev of a model": lambda x: jacrev(through_model)(x[0]),
    "hessian of a model": lambda x: hessian(lambda a: through_model(a).sum())(x[0]),
    "a model whose parameters are met inside": lambda x: vmap(
        lambda a: torch.trace(hessian(lambda q: MODEL(q).sum())(a))
    )(x),
    "random": lambda x: vmap(lambda a: a + torch.randn(3), randomness="different")(x),
    "an index for each sample": lambda x: vmap(lambda i: (x[i], x[:1, i]))(torch.arange(2)),
    "a row and an index for each sample": lambda x: vmap(lambda a, i: a[i] + x[i, :1])(x, torch.arange(2)),
    "indices in two layers": lambda x: vmap(lambda i: vmap(lambda j: x[i, j])(torch.arange(3)))(torch.arange(2)),
    "an index of one layer of gradients": lambda x: grad(lambda a: a[torch.tensor(1)].sum())(x),
    "chunks": lambda x: vmap(lambda a: a.sum(), chunk_size=1)(x),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_eager(name: str, backend: str) -> None:
    fn = CASES[name]
    compiled = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        torch.manual_seed(0)
        wanted = fn(X)
        torch.manual_seed(0)
        assert_alike(wanted, compiled(X))
    assert len(_native.cache_entries(fn.__code__)) == 1


BROKEN: dict[str, Callable[[Any], Any]] = {
    "grad": lambda x: grad(lambda a: (torchdynamo.graph_break(), (a * 2).sin().sum())[1])(x),
    "vmap": lambda x: vmap(lambda a: (torchdynamo.graph_break(), (a * 2).sin())[1])(x),
    "vmap of grad": lambda x: vmap(grad(lambda a: (torchdynamo.graph_break(), (a * 2).sin().sum())[1]))(x),
    "hessian": lambda x: hessian(lambda a: (torchdynamo.graph_break(), (a * 2).sin().sum())[1])(x[0]),
    "jvp": lambda x: jvp(lambda a: (torchdynamo.graph_break(), (a * 2).sin())[1], (x,), (x,)),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.filterwarnings("error::torchdynamo.exc.FallbackWarning")
def test_what_follows_a_break_inside_is_compiled_as_it_was_captured(name: str, backend: str) -> None:
    fn = BROKEN[name]
    compiled = torchdynamo.compile(fn, backend=backend)
    for _ in range(2):
        assert_alike(fn(X), compiled(X))


def test_a_level_that_was_open_before_is_closed_once() -> None:
    """The break comes first, so what closes the level is another frame than what opens it."""
    forward = torch.autograd.forward_ad

    def fn(x: Any) -> Any:
        with forward.dual_level():
            dual = forward.make_dual(x, x * 2)
            return forward.unpack_dual(dual * 3).tangent

    compiled = torchdynamo.compile(fn, backend="eager")
    with torchdynamo.config.patch(suppress_errors=False):
        for _ in range(2):
            assert_alike(fn(X), compiled(X))
    with forward.dual_level() as level:
        assert level == 0


def test_a_break_inside_leaves_no_level_open() -> None:
    def fn(x: Any) -> Any:
        def inner(a: Any) -> Any:
            torchdynamo.graph_break()
            return a.sin()

        return jvp(inner, (x,), (x,))

    assert_alike(fn(X), torchdynamo.compile(fn, backend="eager")(X))
    assert torch._C._functorch.peek_interpreter_stack() is None
    with torch.autograd.forward_ad.dual_level() as level:
        assert level == 0

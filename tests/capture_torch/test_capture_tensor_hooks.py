"""Hooks that a function puts on tensors: one graph, eager's gradients, and handles that work."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchdynamo
from torchdynamo import _native

Case = Callable[[Any, list[Any]], Any]  # of a leaf and of a list that hooks may write to; gives what goes backward


def on_the_input(x: Any, seen: list[Any]) -> Any:
    x.register_hook(lambda g: g * 2)
    return x * 3


def only_hooks(x: Any, seen: list[Any]) -> Any:
    x.register_hook(lambda g: g * 2)
    return x.view(-1)


def several(x: Any, seen: list[Any]) -> Any:
    x.register_hook(lambda g: g * 2)
    x.register_hook(lambda g: g + 1)
    return x * 3


def removed(x: Any, seen: list[Any]) -> Any:
    first = x.register_hook(lambda g: g * 2)
    y = x * x
    first.remove()
    first.remove()
    x.register_hook(lambda g: g * 3)
    return y


def removed_in_a_loop(x: Any, seen: list[Any]) -> Any:
    handles = [x.register_hook(lambda g, i=i: g * (i + 2)) for i in range(3)]
    y = x * 2
    for handle in handles[:2]:
        handle.remove()
    return y


def in_a_block(x: Any, seen: list[Any]) -> Any:
    with x.register_hook(lambda g: g * 2):
        return x * 3


def in_the_middle(x: Any, seen: list[Any]) -> Any:
    y = x * 2
    before = y + 1
    y.register_hook(lambda g: g * 5)
    return before + y * 3


def in_the_middle_without_a_result(x: Any, seen: list[Any]) -> Any:
    y = x * 2
    y.register_hook(lambda g: None)
    return y * 3


def in_the_middle_and_removed(x: Any, seen: list[Any]) -> Any:
    y = x * 2
    handle = y.register_hook(lambda g: g * 10)
    z = y * 3
    handle.remove()
    return z


def on_a_view(x: Any, seen: list[Any]) -> Any:
    y = x * 2
    first = y[:1]
    first.register_hook(lambda g: g * 3)
    return first.sum() + y.sum()


def written_to_afterwards(x: Any, seen: list[Any]) -> Any:
    y = x * 2
    y.register_hook(lambda g: g * 3)
    y.mul_(2)
    return y + 1


def on_the_result(x: Any, seen: list[Any]) -> Any:
    y = x * 2
    y.register_hook(lambda g: g * 2)
    return y


def that_tells(x: Any, seen: list[Any]) -> Any:
    y = x * 2
    y.register_hook(lambda g: seen.append(g.clone()))
    return y * 3


def a_partial(x: Any, seen: list[Any]) -> Any:
    x.register_hook(functools.partial(torch.mul, x.detach() + 1))
    return x * 3


def a_closure(x: Any, seen: list[Any]) -> Any:
    factor = x.detach() * 2
    x.register_hook(lambda g: g * factor)
    return x * 3


def after_accumulation(x: Any, seen: list[Any]) -> Any:
    def double(leaf: Any) -> None:
        leaf.grad = leaf.grad * 2

    x.register_post_accumulate_grad_hook(double)
    return x * 3


def after_accumulation_removed(x: Any, seen: list[Any]) -> Any:
    handle = x.register_post_accumulate_grad_hook(lambda leaf: seen.append(1))
    y = x * 3
    handle.remove()
    return y


def keeps_a_gradient(x: Any, seen: list[Any]) -> Any:
    y = x * 3
    y.retain_grad()
    seen.append(y)
    return y * y


def asks_whether_there_are_any(x: Any, seen: list[Any]) -> Any:
    return x * 3 if x._backward_hooks is None and (x * 2)._backward_hooks is None else x * 4


CASES: list[Case] = [
    *(on_the_input, only_hooks, several, removed, removed_in_a_loop, in_the_middle, in_the_middle_without_a_result),
    *(in_the_middle_and_removed, on_a_view, on_the_result, that_tells, a_partial, a_closure, after_accumulation),
    *(after_accumulation_removed, keeps_a_gradient, asks_whether_there_are_any, in_a_block),
]


def told(seen: list[Any]) -> list[Any]:
    """What hooks said, as lists."""
    return [each.grad.tolist() if each.requires_grad else each.tolist() for each in seen if torch.is_tensor(each)]


def played(fn: Case) -> Any:
    """Two calls, each with a backward: gradients, and what hooks said."""
    found = []
    for _ in range(2):
        x, seen = torch.arange(1.0, 4.0).requires_grad_(), []
        fn(x, seen).sum().backward()
        found.append((x.grad.tolist(), told(seen)))  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_one_graph_and_eagers_gradients(fn: Case, backend: str) -> None:
    with torchdynamo.config.patch(suppress_errors=False):
        assert played(torchdynamo.compile(fn, backend=backend, fullgraph=True)) == played(fn)
    assert len(_native.cache_entries(fn.__code__)) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_tensor_that_is_written_to_afterwards_has_another_history(backend: str) -> None:
    assert played(torchdynamo.compile(written_to_afterwards, backend=backend)) == played(written_to_afterwards)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_handles_that_leave_the_function_work(backend: str) -> None:
    held: dict[str, Any] = {}

    def in_order(x: Any) -> Any:
        x.register_hook(lambda g: g * 2)
        held["last"] = x.register_hook(lambda g: g + 1)
        return x * 1

    x = torch.ones(2, requires_grad=True)
    torchdynamo.compile(in_order, backend=backend, fullgraph=True)(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3]

    def fn(x: Any) -> Any:
        held["first"] = x.register_hook(lambda g: g * 2)
        gone = x.register_hook(lambda g: g * 100)
        gone.remove()
        second = x.register_hook(lambda g: g * 3)
        return x * 1, second, second, gone

    compiled = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        x = torch.ones(2, requires_grad=True)
        y, second, again, gone = compiled(x)
        assert second is again
        assert held["first"].id < second.id
        y.sum().backward(retain_graph=True)
        held["first"].remove()
        y.sum().backward(retain_graph=True)
        second.remove()
        gone.remove()
        y.sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [6 + 3 + 1] * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_model_with_a_hook_inside(backend: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            hidden = self.first(x)
            hidden.register_hook(lambda g: g * 0.5)
            return self.second(hidden)

    torch.manual_seed(0)
    model = Model()
    compiled = torchdynamo.compile(model, backend=backend, fullgraph=True)
    found = []
    for run in (model, compiled, compiled):
        model.zero_grad()
        run(torch.ones(2, 3)).sum().backward()
        found.append([each.grad.tolist() for each in model.parameters() if each.grad is not None])
    assert found[0] == found[1] == found[2]


def refused(x: Any) -> Any:
    x.register_hook(lambda g: g)
    return x + 1


def refused_for_no_leaf(x: Any) -> Any:
    (x.requires_grad_() * 2).register_post_accumulate_grad_hook(lambda leaf: None)
    return x + 1


def refused_without_history(x: Any) -> Any:
    x.retain_grad()
    return x + 1


@pytest.mark.parametrize("fn", [refused, refused_for_no_leaf, refused_without_history], ids=lambda fn: fn.__name__)
def test_what_eager_refuses(fn: Callable[..., Any]) -> None:
    with pytest.raises(RuntimeError) as wanted:
        fn(torch.ones(2))
    with pytest.raises(RuntimeError) as found:
        torchdynamo.compile(fn, backend="eager")(torch.ones(2))
    assert str(found.value) == str(wanted.value)


# -- gradients that the function asks for itself, which see the hooks -------------------------------------------------
def asks_a_leaf(x: Any, seen: list[Any]) -> Any:
    x.register_hook(lambda g: g * 2)
    return torch.autograd.grad((x * x).sum(), x)


def asks_the_middle(x: Any, seen: list[Any]) -> Any:
    y = x * 2
    y.register_hook(lambda g: seen.append(g.sum().item()) or g * 3)
    return torch.autograd.grad((y * y).sum(), x)


def asks_what_is_retained(x: Any, seen: list[Any]) -> Any:
    y = x * 2
    y.retain_grad()
    found = torch.autograd.grad((y * y).sum(), x)
    return *found, y.grad


def asks_again(x: Any, seen: list[Any]) -> Any:
    y = x * x
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    y.register_hook(lambda g: g * 5)
    return torch.autograd.grad(y.sum() + first.sum(), x)


def asks_a_layer(x: Any, seen: list[Any]) -> Any:
    """One hook reads what another has left, as libraries do that look into a model."""
    layer, left = nn.Sequential(nn.ReLU()), {}

    def before(module: Any, args: Any) -> Any:
        args[0].register_hook(lambda g: g * left["grad"].relu() if left else None)
        return args[0].clone()

    def after(module: Any, args: Any, out: Any) -> None:
        out.register_hook(lambda g: left.__setitem__("grad", g))

    layer[0].register_forward_pre_hook(before)
    layer[0].register_forward_hook(after)
    return torch.autograd.grad((layer(x - 1) * x).sum(), x)


ASKING = [asks_a_leaf, asks_the_middle, asks_what_is_retained, asks_again, asks_a_layer]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", ASKING, ids=lambda fn: fn.__name__)
def test_gradients_that_are_asked_for_in_the_function(fn: Case, backend: str) -> None:
    compiled = torchdynamo.compile(fn, backend=backend)
    for _ in range(2):
        found = []
        for each in (fn, compiled):
            seen: list[Any] = []
            found.append((each(torch.arange(4.0).requires_grad_(), seen), seen))
        torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)

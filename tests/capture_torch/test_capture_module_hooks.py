"""Hooks that a function registers on modules: compiled once, however many handles have been numbered since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchdynamo
from torchdynamo import _native

Use = Callable[[nn.Module, Any, list[Any]], Any]


def a_hook(model: nn.Module, x: Any, seen: list[Any]) -> Any:
    handle = model.register_forward_hook(lambda module, args, out: out * 2)
    y = model(x)
    handle.remove()
    return y + model(x)


def a_hook_before(model: nn.Module, x: Any, seen: list[Any]) -> Any:
    with model.register_forward_pre_hook(lambda module, args: (args[0] * 2,)):
        return model(x)


def with_keywords(model: nn.Module, x: Any, seen: list[Any]) -> Any:
    handle = model.register_forward_hook(lambda module, args, kwargs, out: out * len(kwargs), with_kwargs=True)
    try:
        return model(input=x)
    finally:
        handle.remove()


def a_hook_that_keeps(model: nn.Module, x: Any, seen: list[Any]) -> Any:
    handles = [each.register_forward_hook(lambda module, args, out: seen.append(out)) for each in model.modules()]
    y = model(x)
    for handle in handles:
        handle.remove()
    return y


def in_another_order(model: nn.Module, x: Any, seen: list[Any]) -> Any:
    first = model.register_forward_hook(lambda module, args, out: out + 1)
    second = model.register_forward_hook(lambda module, args, out: out * 2, prepend=True)
    y = model(x)
    first.remove()
    z = model(x)
    second.remove()
    return y, z, len(model._forward_hooks)


def compared(model: nn.Module, x: Any, seen: list[Any]) -> Any:
    first, second = (model.register_forward_pre_hook(lambda module, args: None) for _ in range(2))
    answer = first.id == first.id, first.id == second.id, first.id in model._forward_pre_hooks
    first.remove()
    second.remove()
    return x + 1, answer, first.id in model._forward_pre_hooks


USES: list[Use] = [a_hook, a_hook_before, with_keywords, a_hook_that_keeps, in_another_order, compared]


@pytest.mark.parametrize("fn", USES, ids=lambda fn: fn.__name__)
def test_compiled_once(fn: Use) -> None:
    model, x = nn.Linear(3, 3), torch.arange(6.0).view(2, 3)
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    for _ in range(3):
        wanted, found = [], []
        expected = fn(model, x, wanted)
        torch.utils.hooks.RemovableHandle.next_id += 5
        torch.testing.assert_close(compiled(model, x, found), expected, rtol=0, atol=0)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
        assert not model._forward_hooks and not model._forward_pre_hooks
    assert len(_native.cache_entries(fn.__code__)) == 1  # type: ignore[attr-defined]


def twice(out: Any) -> Any:
    return out * 2


def test_modules_share_what_was_compiled_whatever_their_hooks_are_numbered() -> None:
    def layer() -> nn.Module:
        made = nn.Linear(3, 3)
        made.register_forward_pre_hook(lambda module, args, kwargs: (args, kwargs), with_kwargs=True)
        made.register_forward_pre_hook(lambda module, args: (twice(args[0]),))
        made.register_forward_hook(lambda module, args, out: twice(out))
        return made

    def fn(model: nn.Module, x: Any) -> Any:
        return model(x) + 1

    layers, x = [layer() for _ in range(3)], torch.arange(6.0).view(2, 3)
    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    for model in layers:
        torch.testing.assert_close(compiled(model, x), fn(model, x), rtol=0, atol=0)
    assert len(_native.cache_entries(fn.__code__)) == 1

    with layers[1].register_forward_hook(lambda module, args, out: out - 1, prepend=True):
        torch.testing.assert_close(compiled(layers[1], x), fn(layers[1], x), rtol=0, atol=0)
    other = layers[2]._forward_pre_hooks_with_kwargs
    other[[*layers[2]._forward_pre_hooks][1]] = True  # this one gets keywords then
    layers[2]._forward_pre_hooks[[*layers[2]._forward_pre_hooks][1]] = lambda module, args, kwargs: (args, kwargs)
    torch.testing.assert_close(compiled(layers[2], x), fn(layers[2], x), rtol=0, atol=0)


def test_numbers_of_hooks_that_a_function_reads_are_its_own_modules() -> None:
    def fn(model: nn.Module, x: Any) -> Any:
        y = model(x)
        return y, [number * 2 for number in model._forward_hooks]

    compiled = torchdynamo.compile(fn, backend="eager")
    for _ in range(3):
        model = nn.Linear(3, 3)
        model.register_forward_hook(lambda module, args, out: out + 1)
        x = torch.ones(2, 3)
        torch.testing.assert_close(compiled(model, x), fn(model, x), rtol=0, atol=0)


def test_hooks_that_stay_have_numbers_of_their_own() -> None:
    model, held = nn.Linear(3, 3), []

    def fn(x: Any) -> Any:
        model.register_forward_hook(lambda module, args, out: out * 2)
        held.append(model.register_forward_hook(lambda module, args, out: out + 1, with_kwargs=False))
        return x + 1

    compiled = torchdynamo.compile(fn, backend="eager")
    x = torch.ones(2, 3)
    plain = model(x)
    for count in range(1, 4):
        compiled(x)
        assert len(set(model._forward_hooks)) == 2 * count
        assert all(number < torch.utils.hooks.RemovableHandle.next_id for number in model._forward_hooks)
    for handle in held:
        handle.remove()
    torch.testing.assert_close(model(x), plain * 8)


@pytest.mark.parametrize("everywhere", [False, True])
def test_hooks_that_are_always_called_are_called_on_errors(everywhere: bool) -> None:
    class Picky(nn.Module):
        def forward(self, x: Any) -> Any:
            if x.shape[0] == 2:
                raise ValueError("two")
            return x + 1

    model, seen = Picky(), []

    def fn(x: Any) -> Any:
        try:
            return model(x)
        except ValueError as error:
            return x - len(str(error))

    def hook(module: nn.Module, args: Any, out: Any) -> None:
        seen.append(out is None)

    register = nn.modules.module.register_module_forward_hook if everywhere else model.register_forward_hook
    with register(hook, always_call=True):
        wanted = [fn(torch.ones(size)) for size in (3, 2)]
        expected = list(seen)
        seen.clear()
        compiled = torchdynamo.compile(fn, backend="eager")
        torch.testing.assert_close([compiled(torch.ones(size)) for size in (3, 2)], wanted)
        assert seen == expected


@pytest.mark.parametrize("name", ["_forward_hooks", "_forward_pre_hooks", "_backward_hooks"])
def test_a_module_without_a_dict_of_hooks_cannot_be_called(name: str) -> None:
    model = nn.Linear(2, 2)
    delattr(model, name)
    compiled = torchdynamo.compile(lambda x: model(x) + 1, backend="eager")
    for _ in range(2):
        with pytest.raises(AttributeError, match=f"'Linear' object has no attribute '{name}'"):
            compiled(torch.ones(1, 2))

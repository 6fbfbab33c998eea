"""Modes that were on before the frame began: they see the operators they would see without us."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode

import torchdynamo
from torchdynamo import config

X = torch.randn(2, 3)


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def fn(x):
    return torch.sin(x) + x * 2


@pytest.mark.parametrize("mode", [Functions, Operators])
@pytest.mark.parametrize("before", [False, True])
def test_modes_see_what_they_would_see(mode: Any, before: bool) -> None:
    compiled = torchdynamo.compile(fn, backend="eager")
    if before:
        compiled(X)
    with mode() as theirs:
        wanted = fn(X)
    with mode() as mine:
        got = compiled(X)
    assert torch.equal(got, wanted) and mine.seen == theirs.seen
    assert torch.equal(compiled(X), wanted)


def test_a_default_device_is_followed() -> None:
    compiled = torchdynamo.compile(lambda: torch.ones(2) * 2, backend="eager", fullgraph=True)
    for device in ("cpu", "meta", "cpu"):
        with torch.device(device):
            assert compiled().device.type == device


def test_a_default_device_is_told() -> None:
    def told(x: Any) -> Any:
        return x * 2, torch.get_default_device(), len(_get_current_function_mode_stack())

    def told_inside(x: Any) -> Any:
        with torch.device("cpu:0"), Functions():
            return x * 2, torch.get_default_device(), len(_get_current_function_mode_stack())

    with config.patch(suppress_errors=False):
        for each in (told, told_inside):
            compiled = torchdynamo.compile(each, backend="eager")
            for device in ("cpu", "cpu:0", None, "cpu:0", "cpu"):
                with torch.device(device) if device else contextlib.nullcontext():
                    assert compiled(X)[1:] == each(X)[1:]


def test_a_device_that_a_function_opens_is_on_the_stack_of_modes() -> None:
    def told(x: Any) -> Any:
        with torch.device("meta"):
            return x * 2, torch.get_default_device(), type(_get_current_function_mode_stack()[-1])

    with config.patch(suppress_errors=False):
        compiled = torchdynamo.compile(told, backend="eager")
        for _ in range(2):
            assert compiled(X)[1:] == told(X)[1:]
            with torch.device("cpu:0"):
                assert compiled(X)[1:] == told(X)[1:]


@pytest.mark.parametrize("before", [False, True])
def test_hooks_on_saved_tensors_see_no_stand_ins(before: bool) -> None:
    x = X.clone().requires_grad_()
    compiled = torchdynamo.compile(fn, backend="eager")
    if before:
        compiled(x)
    seen: list[list[type]] = []
    for each in (fn, compiled):
        seen.append(kinds := [])
        with torch.autograd.graph.saved_tensors_hooks(lambda t, kinds=kinds: kinds.append(type(t)) or t, lambda t: t):
            each(x).sum().backward()
    assert seen[0] == seen[1] and set(seen[1]) == {torch.Tensor}

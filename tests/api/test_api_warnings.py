"""Warnings are at the user's line: ours where the program calls what is compiled, operators' where it calls them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo import config, exc, pipeline

X = torch.ones(3)


def doubles(x):
    return x * 2


def scales(x, n):
    return x * n


def place(call: Callable[[], Any], category: type[Warning]) -> list[tuple[str, int]]:
    """Where the warnings of a call are."""
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        call()
    return [(each.filename, each.lineno) for each in log if issubclass(each.category, category)]


def here() -> int:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def fails(gm: Any, example_inputs: Any) -> Any:
    raise RuntimeError("no compiler")


def fails_later(gm: Any, example_inputs: Any) -> Any:
    def run(*args: Any) -> Any:
        raise RuntimeError("device lost")

    return run


def test_a_backend_that_fails() -> None:
    compiled = torchdynamo.compile(doubles, backend=fails)
    assert place(lambda: compiled(X), exc.FallbackWarning) == [(__file__, here())]


def test_a_graph_that_fails() -> None:
    compiled = torchdynamo.compile(doubles, backend=fails_later)
    assert place(lambda: compiled(X), exc.FallbackWarning) == [(__file__, doubles.__code__.co_firstlineno)]


def test_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError

    torchdynamo.reset()
    monkeypatch.setattr(pipeline.codegen, "finish", fault)
    compiled = torchdynamo.compile(doubles, backend="eager")
    assert place(lambda: compiled(X), exc.FallbackWarning) == [(__file__, here())]


def test_too_many_versions() -> None:
    compiled = torchdynamo.compile(scales, backend="eager", dynamic=False)

    def call() -> None:
        for n in range(config.cache_size_limit + 2):
            compiled(X, n)

    assert place(call, exc.CacheLimitWarning) == [(__file__, call.__code__.co_firstlineno + 2)]


def of_an_operator(x):
    y = x + 1
    return torch.range(0, 2) + y


def of_a_function_of_torch(x):
    y = x + 1
    return torch.nn.functional.softmax(y)


@pytest.mark.parametrize("fn", [of_an_operator, of_a_function_of_torch])
def test_what_operators_warn_of_while_they_are_captured(fn: Any) -> None:
    wanted = place(lambda: fn(X), UserWarning)
    compiled = torchdynamo.compile(fn, backend=lambda gm, inputs: lambda *args: (X,))
    assert wanted == place(lambda: compiled(X), UserWarning) == [(__file__, fn.__code__.co_firstlineno + 2)]

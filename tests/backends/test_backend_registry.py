"""Backends by name: what is found, and what is said about what is not."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from torchdynamo import optimizations
from torchdynamo.backends import BACKENDS, list_backends, lookup, register_backend
from torchdynamo.backends.registry import backend_name, why_not_a_backend
from torchdynamo.backends.retired import RETIRED
from torchdynamo.errors import UnknownBackend


@pytest.fixture(autouse=True)
def same_backends_afterwards() -> Iterator[None]:
    before = dict(BACKENDS)
    yield
    BACKENDS.clear()
    BACKENDS.update(before)


def test_what_there_is() -> None:
    wanted = {"eager", "aot_eager", "aot_eager_decomp_partition", "inductor", "ts", "ofi", "cudagraphs"}
    wanted |= {"onnxrt", "openvino", "tensorrt", "tvm"}
    assert set(list_backends()) >= wanted
    assert list_backends() == sorted(list_backends())
    assert optimizations.BACKENDS is BACKENDS
    for name in list_backends():
        assert lookup(name) is BACKENDS[name]
        assert backend_name(BACKENDS[name]) == name


def test_a_backend_of_the_users() -> None:
    @register_backend
    def mine(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        return gm.forward

    @register_backend(name="by-another-name")
    def also_mine(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        return gm.forward

    assert lookup("mine") is mine
    assert lookup("by-another-name") is also_mine
    assert lookup(mine) is mine
    assert register_backend(mine) is mine
    assert backend_name(functools.partial(mine, example_inputs=())) == "mine"
    with pytest.raises(ValueError, match="'mine' already"):
        register_backend(also_mine, name="mine")


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(UnknownBackend, match=r"did you mean 'inductor'.*aot_eager"):
        lookup("inducter")
    with pytest.raises(UnknownBackend, match="no backend is called 'zzz'; there are aot_eager"):
        lookup("zzz")


@pytest.mark.parametrize("name", sorted(RETIRED))
def test_a_retired_name_says_what_to_use(name: str) -> None:
    with pytest.raises(UnknownBackend, match=r"was removed: .*([Uu]se|call)"):
        lookup(name)


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def training_step(batch: Any) -> Any:
    return batch


async def coroutine(gm: Any, example_inputs: Any) -> Any:
    return gm


@pytest.mark.parametrize("wrong", [training_step, Model(), coroutine, 3, None, lambda a, b, c: a])
def test_what_is_no_backend(wrong: Any) -> None:
    with pytest.raises(TypeError, match="a backend is"):
        lookup(wrong)


def test_the_message_names_the_function_and_the_way_out() -> None:
    with pytest.raises(TypeError, match=r"training_step\(batch.* torchdynamo.compile\(training_step\)"):
        lookup(training_step)


class Callable:
    def __call__(self, gm: Any, example_inputs: Any, **options: Any) -> Any:
        return gm


def test_what_may_be_a_backend() -> None:
    for candidate in (Callable(), functools.partial(lambda k, gm, inputs: gm, 1), max, lambda gm, inputs, *, k=1: gm):
        assert why_not_a_backend(candidate) is None

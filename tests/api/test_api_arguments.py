"""Wrong arguments are refused where they are written, in words that say what to write instead."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo import exc
from torchdynamo.optimizations import BACKENDS


def step(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + b


def plain_backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
    return gm.forward


def backend_with_options(gm: torch.fx.GraphModule, example_inputs: Any, *, options: Any = None) -> Any:
    return gm.forward


def loss_of(model: torch.nn.Module, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (model(x) - target).sum()


def test_compile_takes_what_torch_compile_takes() -> None:
    ours, theirs = inspect.signature(torchdynamo.compile), inspect.signature(torch.compile)
    for name, parameter in ours.parameters.items():
        assert parameter.kind == theirs.parameters[name].kind
        assert parameter.default == ("inductor" if name == "backend" else theirs.parameters[name].default)


@pytest.mark.parametrize(
    ("kwargs", "error", "text"),
    [
        ({"fullgraph": 1}, TypeError, "fullgraph is True or False"),
        ({"dynamic": "yes"}, TypeError, "dynamic is True, False or None"),
        ({"options": ["a"]}, TypeError, "options is a dict"),
        ({"mode": "fastest"}, ValueError, "there is no mode 'fastest'; the modes are 'default'"),
        ({"mode": "max-autotune", "options": {"a": 1}}, ValueError, "mode or options, not both"),
        ({"mode": "reduce_overhead"}, exc.UnknownSetting, "did you mean 'reduce-overhead'"),
        (
            {"options": {"max_autotun": True}},
            exc.UnknownSetting,
            "no option 'max_autotun'; did you mean 'max_autotune'",
        ),
        ({"options": {"triton.cudagraph": True}}, exc.UnknownSetting, "did you mean 'triton.cudagraphs'"),
        ({"options": {"qqqq": True}}, exc.UnknownSetting, "no option 'qqqq'; torch._inductor.list_options"),
        ({"options": {"max-autotune": 3}}, exc.UnknownSetting, "of type bool, and 3 is not"),
        ({"backend": "eager", "options": {"a": 1}}, exc.UnknownSetting, "'eager' has no option 'a'"),
        ({"backend": "eager", "options": {"bucket": 1}}, exc.UnknownSetting, "did you mean 'buckets'"),
        ({"backend": "aot_eager", "mode": "max-autotune"}, exc.UnknownSetting, "'aot_eager' has no modes"),
        ({"backend": plain_backend, "options": {"a": 1}}, exc.UnknownSetting, "'plain_backend' has no option 'a'"),
        ({"backend": "inducto"}, exc.UnknownBackend, "did you mean 'inductor'"),
        ({"backend": 3}, TypeError, "a backend is a name or a function"),
    ],
)
def test_compile_refuses(kwargs: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        torchdynamo.compile(step, **kwargs)


def test_what_cannot_be_compiled() -> None:
    with pytest.raises(TypeError, match="it takes one function or nn.Module"):
        torchdynamo.compile(3)
    with pytest.raises(TypeError, match="not the class Linear"):
        torchdynamo.compile(torch.nn.Linear)


def test_optimize_refuses() -> None:
    with pytest.raises(TypeError, match="nopython is True or False"):
        torchdynamo.optimize("eager", nopython="no")
    with pytest.raises(exc.UnknownBackend):
        torchdynamo.optimize("nothing of the kind")


def test_a_function_where_the_backend_belongs() -> None:
    with pytest.raises(
        TypeError, match=r"write torchdynamo\.compile\(loss_of\) or torchdynamo\.optimize\(\)\(loss_of\)"
    ):
        torchdynamo.optimize(loss_of)
    two_arguments = torchdynamo.optimize(step)  # might be a backend
    with pytest.raises(
        TypeError, match=r"optimize\(step\) was called with \(Tensor, Tensor\).*write torchdynamo\.compile"
    ):
        two_arguments(torch.ones(2), torch.ones(2))


def test_a_model_where_the_backend_belongs() -> None:
    with pytest.raises(TypeError, match="this Linear is a model"):
        torchdynamo.optimize(torch.nn.Linear(2, 2))


def test_backends_are_listed_by_name() -> None:
    assert {"eager", "aot_eager", "inductor", "ts", "ofi", "cudagraphs"} <= set(torchdynamo.list_backends())
    assert set(torchdynamo.list_backends()) <= BACKENDS.keys()


@pytest.mark.parametrize(
    "kwargs",
    [
        {"options": {"max_autotune": False, "triton.cudagraphs": False}},
        {"mode": "max-autotune-no-cudagraphs"},
        {"backend": "aot_eager", "mode": "default", "options": {}},
        {"backend": "eager", "options": {"buckets": {"x": {0: (4,)}}}},
        {"backend": backend_with_options, "options": {"anything": 1}},
    ],
)
def test_settings_that_a_backend_takes(kwargs: Any) -> None:
    assert torchdynamo.compile(step, **kwargs) is not None


def test_what_is_refused_is_an_error_of_ours_and_of_torch_compiles_kind() -> None:
    """`torch.compile` raises RuntimeError for these; wrong values are ValueErrors elsewhere in Python."""
    assert issubclass(exc.UnknownSetting, (exc.TorchDynamoError, RuntimeError))
    assert issubclass(exc.UnknownSetting, ValueError)

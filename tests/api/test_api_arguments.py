"""Wrong arguments are refused where they are written, in words that say what to write instead."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
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
    for name, parameter in theirs.parameters.items():
        assert parameter.kind == ours.parameters[name].kind
        assert parameter.default in (ours.parameters[name].default, "inductor")  # that, where a default cannot be set


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
        ({"backend": plain_backend, "mode": "max-autotune"}, exc.UnknownSetting, "'plain_backend' has no modes"),
        ({"options": {"use_aoti": True}}, exc.UnknownSetting, "use_aoti is not supported"),
        ({"name": 3}, TypeError, "name is a string"),
        ({"recompile_limit": 2.0}, TypeError, "recompile_limit is a number"),
        ({"recompile_limit": 0}, ValueError, "recompile_limit must be at least 1"),
        ({"isolate_recompiles": 1}, TypeError, "isolate_recompiles is True or False"),
        ({"shapes_spec": {}}, exc.UnknownSetting, "shapes_spec is not supported"),
        ({"dynamic_shapes": {}}, exc.UnknownSetting, "dynamic_shapes is not supported"),
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
    with pytest.raises(TypeError, match="with a method __call__, not the class Plain"):
        torchdynamo.compile(type("Plain", (), {}))


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


def test_a_mode_is_ignored_by_backends_that_have_none(caplog: pytest.LogCaptureFixture) -> None:
    """As by those of torch.compile, which say so in the log."""
    for backend in ("eager", "aot_eager"):
        compiled = torchdynamo.compile(step, backend=backend, mode="reduce-overhead")
        assert f"backend {backend!r} has no modes, and ignores mode='reduce-overhead'" in caplog.text
        assert torch.equal(compiled(torch.ones(2), torch.ones(2)), torch.full((2,), 2.0))


def test_filters_of_guards_are_ignored_with_a_warning() -> None:
    with pytest.warns(exc.TorchDynamoWarning, match="guard_filter_fn has no effect") as caught:
        compiled = torchdynamo.compile(step, backend="eager", options={"guard_filter_fn": lambda guards: []})
    assert caught[0].filename == __file__
    assert torch.equal(compiled(torch.ones(2), torch.ones(2)), torch.full((2,), 2.0))


class Counting:
    """A backend that counts its graphs."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        self.graphs += 1
        return gm.forward


def scaled(x: torch.Tensor, name: str) -> torch.Tensor:
    return x * len(name)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_limit_of_its_own(fullgraph: bool) -> None:
    backend, x = Counting(), torch.ones(2)
    limited = torchdynamo.compile(scaled, backend=backend, fullgraph=fullgraph, recompile_limit=2)
    for name in ("a", "bb"):
        limited(x, name)
    if fullgraph:
        for _ in range(6):
            with pytest.raises(exc.FailOnRecompileLimitHit, match="its limit of 2 versions .its recompile_limit."):
                limited(x, "ccc")
    else:
        with pytest.warns(exc.CacheLimitWarning, match="its limit of 2 versions .its recompile_limit."):
            assert torch.equal(limited(x, "ccc"), x * 3)
    assert backend.graphs == 2
    other = torchdynamo.compile(scaled, backend=backend)
    for name in ("a", "bb", "ccc", "dddd"):
        other(x, name)
    assert backend.graphs == 6


def test_versions_of_its_own() -> None:
    backend, x = Counting(), torch.ones(2)
    shared = [torchdynamo.compile(scaled, backend=backend) for _ in range(2)]
    for compiled in shared:
        compiled(x, "a")
    assert backend.graphs == 1
    isolated = [torchdynamo.compile(scaled, backend=backend, isolate_recompiles=True) for _ in range(2)]
    for compiled in isolated:
        compiled(x, "a")
    assert backend.graphs == 3


def test_a_name_is_said_in_messages() -> None:
    assert "compile(my step)" in repr(torchdynamo.compile(backend="eager", name="my step"))


# -- backends that are registered with PyTorch -------------------------------------------------------------------------
def test_the_default_backend_is_that_of_torch_compile() -> None:
    if not hasattr(torch.compiler, "set_default_backend"):
        pytest.skip("new in PyTorch 2.12")
    backend = Counting()
    torch.compiler.set_default_backend(backend)
    try:
        compiled = torchdynamo.compile(step)
    finally:
        torch.compiler.set_default_backend(None)
    compiled(torch.ones(2), torch.ones(2))
    assert backend.graphs == 1


def test_a_backend_that_is_registered_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.backends import registry

    for table in (registry._BACKENDS, registry._COMPILER_FNS):
        monkeypatch.delitem(table, "theirs", raising=False)
    graphs = []

    @torch._dynamo.register_backend(name="theirs")
    def of_the_program(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = torchdynamo.compile(step, backend="theirs")
    compiled(torch.ones(2), torch.ones(2))
    assert len(graphs) == 1
    for table in (registry._BACKENDS, registry._COMPILER_FNS):
        del table["theirs"]
    with pytest.raises(exc.UnknownBackend):
        torchdynamo.compile(step, backend="theirs")


def test_a_backend_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by its entry point, in a process that has not imported torch._dynamo."""
    info = tmp_path / "gives_backends-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gives-backends\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torch_dynamo_backends]\nof_a_package = gives_backends:backend\n")
    (tmp_path / "gives_backends.py").write_text(
        "graphs = []\ndef backend(gm, example_inputs):\n    graphs.append(gm)\n    return gm.forward\n"
    )
    program = """
import sys, torch, torchdynamo
compiled = torchdynamo.compile(lambda x: x + 1, backend="of_a_package")
assert "torch._dynamo" not in sys.modules
assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
assert len(sys.modules["gives_backends"].graphs) == 1
"""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)

"""`torchdynamo.install()` puts torchdynamo behind `torch.compile`, wherever that is called, and can be undone."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import pickle
import sys
import types
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.fx.experimental.symbolic_shapes
from torch.nn.attention import flex_attention as flex

import torchdynamo
from torchdynamo import drop_in, exc
from torchdynamo.hook.install import Compiled
from torchdynamo.report.explain import collecting

THEIRS = torch.compile
X = torch.ones(3)


def adds(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Any:
    """No test leaves `torch.compile` replaced; no module of a test's environment is warned of."""
    monkeypatch.setattr(drop_in, "_told", set(drop_in._holders(THEIRS)))
    assert torch.compile is THEIRS
    yield
    assert torch.compile is THEIRS
    assert not drop_in._handles


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


# -- what is reached ---------------------------------------------------------------------------------------------------
def test_functions_and_decorators() -> None:
    with torchdynamo.install():
        assert type(torch.compile(adds, backend="eager")) is Compiled
        assert type(torch.compiler.compile(adds, backend="eager")) is Compiled
        decorated = torch.compile(backend="eager", fullgraph=True)(adds)
    assert type(decorated) is Compiled
    assert torch.equal(decorated(X), X + 1)  # also after the end of the block
    assert type(torch.compile(adds, backend="eager")) is types.FunctionType


@pytest.mark.parametrize("layer", [torch.nn.Linear(3, 3), torch.nn.Softmax(dim=0)], ids=["linear", "softmax"])
def test_layers_of_torch_in_place(layer: torch.nn.Module) -> None:
    graphs = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    wanted = layer(X)
    with torchdynamo.install():
        layer.compile(backend=backend)
    assert torch.equal(layer(X), wanted)
    assert len(graphs) == 1


def test_modules_in_place() -> None:
    net = Net()
    wanted = net(X)
    with torchdynamo.install():
        net.compile(backend="eager", fullgraph=True)
        assert isinstance(torch.compile(net, backend="eager"), torchdynamo.OptimizedModule)
    assert type(net._compiled_call_impl) is Compiled
    seen = []
    net.register_forward_hook(lambda module, args, result: seen.append(1))
    for count in (1, 2):
        assert torch.equal(net(X), wanted)
        assert len(seen) == count
    assert copy.deepcopy(net)._compiled_call_impl is None
    torch.save(net.linear, io.BytesIO())


def test_it_looks_like_torchs() -> None:
    with torchdynamo.install():
        assert torch.compile is not THEIRS
        assert inspect.signature(torch.compile) == inspect.signature(THEIRS)
        assert (torch.compile.__module__, torch.compile.__name__) == (THEIRS.__module__, "compile")


def test_wrong_settings_are_runtime_errors_as_torchs() -> None:
    wrong: list[dict[str, Any]] = [
        {"mode": "fastest"},
        {"options": {"max_autotun": True}},
        {"mode": "max-autotune", "options": {"max_autotune": True}},
        {"backend": "inducto"},
    ]
    with torchdynamo.install():
        for settings in wrong:
            with pytest.raises(RuntimeError):
                torch.compile(adds, **settings)


def test_a_compiled_function_may_compile_another() -> None:
    def outer(x: torch.Tensor) -> torch.Tensor:
        return torch.compile(adds, backend="eager")(x * 2) * 3

    with torchdynamo.install():
        compiled = torch.compile(outer, backend="eager")
        for _ in range(2):
            assert torch.equal(compiled(X), X * 9)


# -- what is not -------------------------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:.*flex_attention called without:UserWarning")
def test_torch_compiles_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(drop_in, "compile", lambda *args, **kwargs: asked.append(args))
    q, k, v = (torch.randn(1, 2, 16, 8) for _ in range(3))
    wanted = flex.flex_attention(q, k, v)
    with torchdynamo.install():
        assert torch.equal(flex.flex_attention(q, k, v), wanted)
    assert asked == []


class Compiling(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.compile(adds, backend="eager")(x) * 2


@pytest.mark.filterwarnings("ignore:torch.compile is ignored when called inside:UserWarning")
@pytest.mark.parametrize("strict", [False, True])
def test_inside_of_an_export_it_is_torchs(strict: bool) -> None:
    for installed in (torchdynamo.install(), contextlib.nullcontext()):
        with installed:
            exported = torch.export.export(Compiling(), (X,), strict=strict)
        assert torch.equal(exported.module()(X), X * 2 + 2)


def test_what_torch_compile_had_compiled_goes_on() -> None:
    """It does nothing for a call of itself, whatever stands there."""
    compiled = THEIRS(Compiling(), backend="eager", fullgraph=True)
    for installed in (contextlib.nullcontext(), torchdynamo.install(), contextlib.nullcontext()):
        with installed:
            torch._dynamo.reset()
            assert torch.equal(compiled(X), X * 2 + 2)


def test_modules_that_hold_torchs_are_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("early_importer")
    exec("from torch import compile as kept", vars(module))
    monkeypatch.setitem(sys.modules, "early_importer", module)
    with pytest.warns(exc.TorchDynamoWarning, match="^early_importer took PyTorch's compile by `from torch import"):
        torchdynamo.install().uninstall()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torchdynamo.install().uninstall()


# -- undoing it --------------------------------------------------------------------------------------------------------
def test_it_is_undone_once() -> None:
    first, second = torchdynamo.install(), torchdynamo.install()
    stand_in = torch.compile
    assert stand_in is not THEIRS
    assert "in place" in repr(first)
    second.uninstall()
    assert torch.compile is THEIRS
    assert "undone" in repr(first)
    first.uninstall()
    assert torch.compile is THEIRS


def test_blocks_are_nested() -> None:
    with torchdynamo.install():
        with pytest.raises(KeyError), torchdynamo.install():
            raise KeyError
        assert torch.compile is not THEIRS
    assert torch.compile is THEIRS
    handle = torchdynamo.install()
    with torchdynamo.install():
        pass
    assert torch.compile is not THEIRS
    handle.uninstall()


def test_blocks_overlap_in_threads() -> None:
    def work(number: int) -> None:
        for _ in range(50):
            with torchdynamo.install():
                assert torch.compile is not THEIRS

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_it_is_not_undone_over_what_somebody_else_has_put_there(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = torchdynamo.install()
    with monkeypatch.context() as patch:
        patch.setattr(torch, "compile", adds)
        with pytest.raises(exc.TorchDynamoError, match=r"replaced by .*test_drop_in\.adds since"):
            handle.uninstall()
        assert torch.compile is adds
    handle.uninstall()


def test_what_was_there_before_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(torch, "compile", adds)
        with torchdynamo.install():
            assert type(torch.compile(adds, backend="eager")) is Compiled
        assert torch.compile is adds


# -- settings of torch.compile -----------------------------------------------------------------------------------------
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * x.sum().item()


def graphs_at_sizes(fn: Any, *sizes: int, **settings: Any) -> int:
    """The number of graphs of calls at these sizes; nothing is warned of."""
    graphs: list[Any] = []

    def counting(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    torchdynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", exc.TorchDynamoWarning)
        compiled = torch.compile(fn, backend=counting, **settings)
        for size in sizes:
            assert torch.equal(compiled(torch.ones(size)), fn(torch.ones(size)))
    return len(graphs)


@pytest.mark.parametrize(
    ("changes", "fn", "sizes", "graphs"),
    [
        ({}, scaled, (3,), 2),
        ({"capture_scalar_outputs": True}, scaled, (3,), 1),
        ({}, adds, (3, 4, 5), 2),
        ({"assume_static_by_default": False}, adds, (3, 4, 5), 1),
        ({"automatic_dynamic_shapes": False}, adds, (3, 4, 5), 3),
        ({"automatic_dynamic_shapes": False, "assume_static_by_default": False}, adds, (3, 4, 5), 1),
        ({"capture_dynamic_output_shape_ops": True}, torch.nonzero, (3,), 1),
    ],
)
def test_settings_of_torch_compile_decide_while_installed(
    changes: dict[str, bool], fn: Any, sizes: tuple[int, ...], graphs: int
) -> None:
    with torchdynamo.install(), torch._dynamo.config.patch(**changes):
        assert graphs_at_sizes(fn, *sizes) == graphs


def test_arguments_and_settings_of_ours_come_before_those_of_torch_compile() -> None:
    with torchdynamo.install(), torch._dynamo.config.patch(automatic_dynamic_shapes=False, recompile_limit=2):
        assert graphs_at_sizes(adds, 3, 4, 5, dynamic=True) == 1
        with torchdynamo.config.patch(cache_size_limit=8):  # the default, which the program asks for
            assert torchdynamo.config.cache_size_limit == 8
        with torchdynamo.config.patch(cache_size_limit=4):
            assert graphs_at_sizes(adds, 3, 4, 5, 6) == 4


def test_limits_of_torch_compile_hold_while_installed() -> None:
    with torchdynamo.install(), torch._dynamo.config.patch(recompile_limit=1, automatic_dynamic_shapes=False):
        compiled = torch.compile(adds, backend="eager", fullgraph=True)
        compiled(torch.ones(3))
        with pytest.raises(exc.FailOnRecompileLimitHit):
            compiled(torch.ones(4))
    with torchdynamo.install(), torch._dynamo.config.patch(error_on_recompile=True):
        torchdynamo.reset()
        compiled(torch.ones(3))
        with pytest.raises(exc.RecompileError):
            compiled(torch.ones(4))
    assert torchdynamo.config.changed() == {}


@pytest.mark.parametrize("installed", [False, True])
def test_a_function_that_reads_settings_of_torch_compile_follows_them(installed: bool) -> None:
    settings = torch._dynamo.config
    compiled = torchdynamo.compile(lambda x: x * (2 if settings.capture_scalar_outputs else 3), backend="eager")
    with torchdynamo.install() if installed else contextlib.nullcontext():
        for changed in (False, True, False):
            with settings.patch(capture_scalar_outputs=changed):
                assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0 if changed else 3.0))


def test_a_setting_that_captures_replace_is_read_as_the_program_has_it() -> None:
    settings = torch.fx.experimental._config

    def read(x: torch.Tensor) -> torch.Tensor:
        return x.expand(torch.broadcast_shapes(x.shape, (1,))) * (2 if settings.backed_size_oblivious else 3)

    with collecting() as events:
        compiled = torchdynamo.compile(read, backend="eager", fullgraph=True)
        for changed, graphs in ((False, 1), (False, 1), (True, 2), (False, 2)):
            with settings.patch(backed_size_oblivious=changed):
                assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0 if changed else 3.0))
            assert len(events) == graphs


# -- under torch.compile's names ---------------------------------------------------------------------------------------
def breaks(x: torch.Tensor) -> torch.Tensor:
    torchdynamo.graph_break()
    return x + 1


def failing(gm: Any, example_inputs: Any) -> Any:
    raise ValueError("no")


def grows(x: torch.Tensor, text: str) -> torch.Tensor:
    return x + len(text)


def is_made_again() -> None:
    compiled = torch.compile(grows, backend="eager", recompile_limit=1, fullgraph=True)
    for text in ("a", "bc"):
        compiled(X, text)


def is_refused() -> None:
    with torch.compiler.set_stance("fail_on_recompile"):
        torch.compile(adds, backend="eager")(X)


def is_constant() -> None:
    x = torch.ones(3)
    torchdynamo.mark_dynamic(x, 0)
    torch.compile(lambda x: x.view(3), backend="eager", fullgraph=True)(x)


ERRORS: dict[str, tuple[Any, Any]] = {
    "Unsupported": (exc.Unsupported, lambda: torch.compile(breaks, backend="eager", fullgraph=True)(X)),
    "BackendCompilerFailed": (exc.BackendError, lambda: torch.compile(adds, backend=failing, fullgraph=True)(X)),
    "InvalidBackend": (exc.UnknownBackend, lambda: torch.compile(adds, backend="nope")(X)),
    "FailOnRecompileLimitHit": (exc.FailOnRecompileLimitHit, is_made_again),
    "RecompileError": (exc.RecompileError, is_refused),
    "ConstraintViolationError": (exc.ConstraintViolationError, is_constant),
    "TorchDynamoException": (exc.TorchDynamoError, lambda: torch.compile(breaks, backend="eager", fullgraph=True)(X)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_torch_compiles_as_well(name: str) -> None:
    ours, act = ERRORS[name]
    theirs = getattr(torch._dynamo.exc, name, None) or getattr(torch.fx.experimental.symbolic_shapes, name)
    torchdynamo.reset()
    with torchdynamo.install(), pytest.raises(theirs) as caught:
        act()
    error: Any = caught.value
    assert isinstance(error, ours)
    assert type(error).__qualname__ == type(pickle.loads(pickle.dumps(error))).__qualname__
    assert error.msg == str(error) == str(copy.copy(error))
    if name == "BackendCompilerFailed":
        assert isinstance(error.inner_exception, ValueError)
        assert error.backend_name == "failing"


def test_errors_are_ours_alone_where_it_is_not_installed() -> None:
    with pytest.raises(exc.Unsupported) as caught:
        torchdynamo.compile(breaks, backend="eager", fullgraph=True)(X)
    assert type(caught.value) is exc.Unsupported


def test_counters_of_torch_compile_count_ours() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x = x.sin()
        torch._dynamo.graph_break()
        return x + 1

    counters = torch._dynamo.utils.counters
    for installed in (torchdynamo.install(), contextlib.nullcontext()):
        counters.clear()
        torchdynamo.reset()
        with installed:
            torchdynamo.compile(fn, backend="eager")(X)
        if isinstance(installed, contextlib.nullcontext):
            assert not counters["frames"]
            continue
        assert counters["frames"] == {"total": 2, "ok": 2}
        assert counters["stats"] == {"calls_captured": 2, "unique_graphs": 2}
        assert [*counters["graph_break"].items()] == [("The program itself asks for the graph to end here.", 1)]


def test_compiled_modules_are_instances_of_torch_compiles_class() -> None:
    """As diffusers and accelerate ask, before they take the module that was compiled out of it."""
    theirs = torch._dynamo.OptimizedModule
    before = torch.compile(torch.nn.ReLU(), backend="eager")
    with torchdynamo.install():
        ours = torch.compile(torch.nn.ReLU(), backend="eager")
        for cls in (torch._dynamo.OptimizedModule, torch._dynamo.eval_frame.OptimizedModule):
            assert [isinstance(each, cls) for each in (ours, before, ours._orig_mod)] == [True, True, False]
            assert issubclass(cls, theirs)

        @torch.compile(backend="eager", fullgraph=True)
        def without_wrapper(module: Any, x: torch.Tensor) -> torch.Tensor:
            return (module._orig_mod if isinstance(module, torch._dynamo.OptimizedModule) else module)(x) + 1

        assert all(without_wrapper(each, X).equal(X.relu() + 1) for each in (ours, ours._orig_mod))
    assert torch._dynamo.OptimizedModule is torch._dynamo.eval_frame.OptimizedModule is theirs
    assert isinstance(before, theirs) and not isinstance(ours, theirs)


def test_a_reset_of_torch_compile_is_one_of_ours() -> None:
    made = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        made.append(gm)
        return gm.forward

    theirs = torch._dynamo.reset
    with torchdynamo.install():
        compiled = torch.compile(adds, backend=backend)
        for reset in (torch._dynamo.reset, torch.compiler.reset, lambda: None):
            compiled(X)
            reset()
        compiled(X)
    assert len(made) == 3
    assert torch._dynamo.reset is theirs

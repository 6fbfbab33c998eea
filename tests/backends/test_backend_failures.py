"""Whatever a backend does wrong, the call gives what eager gives, and the user hears of it once."""

from __future__ import annotations

import operator
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from graphs import build

import torchdynamo
from torchdynamo import config
from torchdynamo.backends import compile_graph, on_error
from torchdynamo.backends.run import Careful
from torchdynamo.errors import BackendError, FallbackWarning, InternalError
from torchdynamo.graph.modes import Modes
from torchdynamo.graph.mutation import mutated_inputs
from torchdynamo.hook.install import CompiledGraph

F = torch.nn.functional
Backend = Callable[[torch.fx.GraphModule, Any], Any]


def sine(t: Any, x: Any) -> Any:
    return t("sin", x)


def compiled_graph(gm: torch.fx.GraphModule, inputs: list[Any], backend: Backend) -> Callable[..., Any]:
    """What pipeline makes of the two functions under test."""
    handler = on_error(gm, "broken", mutated_inputs(gm), "__compiled_fn_0")
    fn = compile_graph(gm, inputs, backend, "__compiled_fn_0")
    return CompiledGraph(fn, "__compiled_fn_0", on_error=handler)


# -- at compile time ---------------------------------------------------------------------------------------------------
def declines(gm: torch.fx.GraphModule, example_inputs: Any) -> None:
    return None


def raises(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
    raise KeyError("no such kernel")


def gives_a_number(gm: torch.fx.GraphModule, example_inputs: Any) -> int:
    return 3


def rewrites_then_raises(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
    for node in gm.graph.find_nodes(op="call_method"):
        node.target = "cos"
    gm.recompile()
    raise ValueError("on second thoughts")


def test_declining_is_no_failure() -> None:
    x = torch.randn(3)
    gm = build(sine, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fn = compile_graph(gm, [x], declines, "__compiled_fn_0", fullgraph=True)
    assert fn == gm.forward
    assert torch.equal(fn(x)[0], x.sin())


@pytest.mark.parametrize("backend", [raises, gives_a_number, rewrites_then_raises])
def test_failing_warns_once_and_runs_eagerly(backend: Backend) -> None:
    x = torch.randn(3)
    with pytest.warns(FallbackWarning) as caught:
        fn = compile_graph(build(sine, x), [x], backend, "__compiled_fn_7")
    assert len(caught) == 1
    assert backend.__name__ in str(caught[0].message)
    assert "__compiled_fn_7" in str(caught[0].message)
    assert torch.equal(fn(x)[0], x.sin())


@pytest.mark.parametrize("backend", [raises, gives_a_number])
def test_failing_is_an_error_where_one_graph_was_asked_for(backend: Backend) -> None:
    x = torch.randn(3)
    with pytest.raises(BackendError) as caught:
        compile_graph(build(sine, x), [x], backend, "__compiled_fn_7", fullgraph=True)
    assert caught.value.backend == backend.__name__
    assert caught.value.graph == "__compiled_fn_7"
    assert isinstance(caught.value.__cause__, (KeyError, TypeError))
    with pytest.raises(BackendError), config.patch(suppress_errors=False):
        compile_graph(build(sine, x), [x], backend, "__compiled_fn_7")


def test_a_backend_that_runs_the_graph_leaves_no_trace() -> None:
    def nosy(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        gm(*example_inputs)
        torch._C._set_grad_enabled(False)
        torch.rand(3)
        return gm.forward

    x, mean = torch.randn(3), torch.zeros(3)
    gm = build(lambda t, x, m: t("add_", m, t(F.dropout, x)), x, mean)
    before, version = torch.get_rng_state(), mean._version
    compile_graph(gm, [x, mean], nosy, "__compiled_fn_0")
    assert torch.equal(mean, torch.zeros(3))
    assert mean._version == version
    assert torch.equal(before, torch.get_rng_state())
    assert torch.is_grad_enabled()


def test_backends_get_the_real_tensors() -> None:
    given: list[Any] = []
    x = torch.nn.Parameter(torch.randn(3))
    compile_graph(build(sine, x), [x], lambda gm, inputs: given.extend(inputs), "__compiled_fn_0")
    assert given[0] is x


def test_a_pure_graph_is_called_as_the_backend_made_it() -> None:
    def result(*args: Any) -> Any:
        return args

    x = torch.randn(3)
    assert compile_graph(build(sine, x), [x], lambda gm, inputs: result, "g") is result
    write = build(lambda t, x: t("add_", x, 1), x)
    assert isinstance(compile_graph(write, [x], lambda gm, inputs: result, "g"), Careful)
    assert compile_graph(write, [x], lambda gm, inputs: gm.forward, "g") == write.forward


# -- at run time -------------------------------------------------------------------------------------------------------
def always_failing(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
    def run(*args: Any) -> Any:
        raise RuntimeError("device lost")

    return run


def test_failing_at_run_time_warns_once() -> None:
    x = torch.randn(3)
    call = compiled_graph(build(sine, x), [x], always_failing)
    with pytest.warns(FallbackWarning, match="'broken'.*__compiled_fn_0.*device lost") as caught:
        results = [call(x)[0] for _ in range(3)]
    assert all(torch.equal(result, x.sin()) for result in results)
    assert len(caught) == 1


def half_way(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
    """Does everything, then fails: the worst case."""
    forward = gm.forward

    def run(*args: Any) -> Any:
        forward(*args)
        raise RuntimeError("too late")

    return run


def noisy_update(t: Any, x: Any, total: Any) -> Any:
    t("add_", total, t(F.dropout, x))
    return t("sum", total)


def test_the_first_call_is_undone_whole() -> None:
    x, total = torch.randn(8), torch.zeros(8)
    gm = build(noisy_update, x, total)
    torch.manual_seed(1)
    wanted = torch.zeros(8)
    want, state = gm(x, wanted)[0], torch.get_rng_state()
    call = compiled_graph(gm, [x, total], half_way)
    torch.manual_seed(1)
    with pytest.warns(FallbackWarning):
        got = call(x, total)[0]
    assert torch.equal(want, got)
    assert torch.equal(total, wanted)
    assert torch.equal(state, torch.get_rng_state())


def test_a_later_call_that_changed_its_inputs_is_not_run_again() -> None:
    def second_time_lucky(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        calls: list[int] = []

        def run(*args: Any) -> Any:
            calls.append(1)
            if len(calls) == 2:
                raise RuntimeError("too early")
            result = forward(*args)
            if len(calls) == 3:
                raise RuntimeError("too late")
            return result

        forward = gm.forward
        return run

    x, total = torch.ones(3), torch.zeros(3)
    gm = build(lambda t, x, total: t("add_", total, x), x, total)
    call = compiled_graph(gm, [x, total], second_time_lucky)
    call(x, total)
    with pytest.warns(FallbackWarning, match="too early"):
        call(x, total)
    assert torch.equal(total, 2 * x)
    with pytest.raises(BackendError, match=r"had changed its inputs already.*too late"):
        call(x, total)
    assert torch.equal(total, 3 * x)


def pick(t: Any, x: Any, i: Any) -> Any:
    return t(operator.mul, t("index_select", x, 0, i), 2)


def test_the_users_own_error_is_eagers() -> None:
    """Both versions of the graph refuse the index; the user sees eager's error, and no frame that is not theirs."""
    x, good, bad = torch.randn(3), torch.tensor([1]), torch.tensor([7])
    gm = build(pick, x, good)
    with pytest.raises(IndexError) as eager:
        gm(x, bad)
    for backend in (always_failing, lambda gm, inputs: gm.forward, lambda gm, inputs: lambda *args: gm(*args)):
        call = compiled_graph(gm, [x, good], backend)
        with warnings.catch_warnings(), pytest.raises(IndexError) as caught:
            warnings.simplefilter("error")
            call(x, bad)
        assert str(caught.value) == str(eager.value)
        files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert not any("eval_with_key" in name or "graph_module" in name for name in files)
        assert not any("/torchdynamo/" in name for name in files)


def test_a_user_error_leaves_what_eager_leaves() -> None:
    def add_then_pick(t: Any, x: Any, i: Any) -> Any:
        t("add_", x, 1)
        return t("index_select", x, 0, i)

    x, good, bad = torch.zeros(3), torch.tensor([1]), torch.tensor([7])
    for backend in (half_way, always_failing, lambda gm, inputs: gm.forward):
        call = compiled_graph(build(add_then_pick, x, good), [x, good], backend)
        mine = torch.zeros(3)
        with pytest.raises(IndexError):
            call(mine, bad)
        assert torch.equal(mine, torch.ones(3))


def test_modes_are_put_back_when_a_graph_stops_half_way() -> None:
    def body(t: Any, x: Any, i: Any) -> Any:
        t(torch._C._set_grad_enabled, False)
        picked = t("index_select", x, 0, i)
        t(torch._C._set_grad_enabled, True)
        return picked

    x, good, bad = torch.randn(3), torch.tensor([1]), torch.tensor([7])
    call = compiled_graph(build(body, x, good), [x, good], lambda gm, inputs: gm.forward)
    with pytest.raises(IndexError):
        call(x, bad)
    assert torch.is_grad_enabled()


def test_interrupts_pass() -> None:
    def interrupted(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            raise KeyboardInterrupt

        return run

    x = torch.randn(3)
    call = compiled_graph(build(sine, x), [x], interrupted)
    with pytest.raises(KeyboardInterrupt):
        call(x)


def test_modes_are_set_back_whole() -> None:
    before = Modes.now()
    torch._C._set_grad_enabled(False)
    torch.set_autocast_enabled("cpu", True)
    torch.set_autocast_dtype("cpu", torch.float16)
    before.restore()
    assert Modes.now() == before
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")


def test_without_exceptions_an_error_is_a_fault() -> None:
    def fn(x: Any) -> Any:
        return x[torch.tensor([9])]

    with pytest.raises(IndexError):
        torchdynamo.compile(fn, backend="pre_dispatch_eager")(torch.ones(2))
    with pytest.raises(InternalError, match="raised IndexError") as raised:
        torchdynamo.compile(fn, backend="eager_noexcept")(torch.ones(2))
    assert isinstance(raised.value.__cause__, IndexError)


@pytest.mark.parametrize("backend", ["eager_noexcept", "pre_dispatch_eager"])
@pytest.mark.filterwarnings("error::torchdynamo.exc.FallbackWarning")
def test_modes_inside(backend: str) -> None:
    def fn(x: Any) -> Any:
        with torch.no_grad():
            y = x.cos()
            with torch.enable_grad():
                z = x.sin() * y
        with torch.autocast("cpu", torch.bfloat16):
            return z * y, x @ x.t()

    compiled = torchdynamo.compile(fn, backend=backend)
    for size in (2, 3, 4):
        found = []
        for run in (fn, compiled):
            x = torch.arange(2.0 * size).view(size, 2).requires_grad_()
            results = run(x)
            sum(each.float().sum() for each in results).backward()
            found.append([*results, x.grad])
        torch.testing.assert_close(*found, rtol=0, atol=0)

"""What each backend makes of a graph equals what the graph gives: inference, training, writes, views."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from graphs import build

from torchdynamo.backends import BACKENDS, aot_autograd

F = torch.nn.functional
AOT = ["aot_eager", "aot_eager_decomp_partition"]
EXACT = ["eager", "eager_noexcept", "pre_dispatch_eager", "aot_eager", "ts", "ofi"]


def mlp(t: Any, x: Any, w: Any, b: Any) -> Any:
    hidden = t("relu", t(F.linear, x, w, b))
    return t(operator.mul, hidden, 2), t("sum", hidden)


def mlp_inputs() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(4, 3), torch.randn(5, 3), torch.randn(5)]


@pytest.mark.parametrize("name", EXACT)
def test_inference_is_exact(name: str) -> None:
    inputs = mlp_inputs()
    gm = build(mlp, *inputs, static=[1, 2])
    compiled = BACKENDS[name](gm, inputs)
    for _ in range(3):
        want, got = gm(*inputs), compiled(*inputs)
        assert type(got) in (tuple, list)
        assert all(map(torch.equal, want, got))
        inputs[0] = torch.randn(4, 3)


def grads(run: Callable[..., Any], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
    outputs = run(*leaves)
    sum(out.square().sum() for out in outputs if out.requires_grad).backward()
    return [*(out.detach() for out in outputs), *(t.grad for t in leaves if t.grad is not None)]


@pytest.mark.parametrize("name", ["eager", "eager_noexcept", "pre_dispatch_eager", "aot_eager", "ts"])
def test_training_is_exact(name: str) -> None:
    inputs = mlp_inputs()
    for t in inputs[1:]:
        t.requires_grad_()
    gm = build(mlp, *inputs, static=[1, 2])
    compiled = BACKENDS[name](gm, inputs)
    for _ in range(3):
        want, got = grads(gm, inputs), grads(compiled, inputs)
        assert len(want) == 4
        assert all(map(torch.equal, want, got))


def test_training_with_decompositions_is_close() -> None:
    inputs = [t.requires_grad_() for t in mlp_inputs()]
    gm = build(lambda t, x, w, b: t(F.gelu, t(F.layer_norm, t(F.linear, x, w, b), [5])), *inputs)
    for want, got in zip(grads(gm, inputs), grads(BACKENDS[AOT[1]](gm, inputs), inputs), strict=True):
        torch.testing.assert_close(want, got)


def test_inductor() -> None:
    inputs = mlp_inputs()
    inputs[1].requires_grad_()
    gm = build(mlp, *inputs, static=[1, 2])
    for want, got in zip(grads(gm, inputs), grads(BACKENDS["inductor"](gm, inputs), inputs), strict=True):
        torch.testing.assert_close(want, got)


def test_inductor_refuses_unknown_options() -> None:
    inputs = mlp_inputs()
    with pytest.raises(ValueError, match="no option 'frobnicate'"):
        BACKENDS["inductor"](build(mlp, *inputs), inputs, options={"frobnicate": True})


# -- graphs that write to their inputs, or return them -----------------------------------------------------------------
def write_and_view(t: Any, x: Any, y: Any) -> Any:
    t("add_", t("view", x, -1), 1)
    t("mul_", y, x)
    return t("t", x), y, t("sum", x)


@pytest.mark.parametrize("name", [*AOT, "eager", "ts"])
def test_writes_and_views(name: str) -> None:
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    gm = build(write_and_view, x, y)
    compiled = BACKENDS[name](gm, [x.clone(), y.clone()])
    wanted, given = [x.clone(), y.clone()], [x.clone(), y.clone()]
    want, got = gm(*wanted), compiled(*given)
    assert all(map(torch.equal, [*want, *wanted], [*got, *given]))
    assert got[0]._is_view()
    assert got[0].data_ptr() == given[0].data_ptr()
    assert got[1].data_ptr() == given[1].data_ptr()


@pytest.mark.parametrize("name", AOT)
def test_running_statistics_are_updated_once(name: str) -> None:
    def norm(t: Any, x: Any, w: Any, mean: Any, var: Any) -> Any:
        return t(F.batch_norm, x, mean, var, w, None, True)

    x, w = torch.randn(4, 3), torch.ones(3, requires_grad=True)
    statistics = [torch.zeros(3), torch.ones(3)]
    want_statistics = copy.deepcopy(statistics)
    gm = build(norm, x, w, *statistics)
    compiled = BACKENDS[name](gm, [x, w, *statistics])
    assert all(map(torch.equal, statistics, want_statistics))
    want, got = gm(x, w, *want_statistics)[0], compiled(x, w, *statistics)[0]
    torch.testing.assert_close(want, got)
    assert got.requires_grad
    for a, b in zip(statistics, want_statistics, strict=True):
        torch.testing.assert_close(a, b)


def test_dropout_draws_the_same_numbers() -> None:
    x = torch.randn(50, requires_grad=True)
    gm = build(lambda t, x: t(F.dropout, x, 0.5, True), x)
    compiled = BACKENDS["aot_eager"](gm, [x])
    torch.manual_seed(3)
    want, state = grads(gm, [x]), torch.get_rng_state()
    torch.manual_seed(3)
    got = grads(compiled, [x])
    assert all(map(torch.equal, want, got))
    assert torch.equal(state, torch.get_rng_state())


def no_grad_inside(t: Any, x: Any) -> Any:
    first = t("sin", x)
    t(torch._C._set_grad_enabled, False)
    second = t("cos", x)
    t(torch._C._set_grad_enabled, True)
    return first, second


@pytest.mark.parametrize("name", ["eager", *AOT])
def test_grad_mode_inside(name: str) -> None:
    x = torch.randn(3, requires_grad=True)
    first, second = BACKENDS[name](build(no_grad_inside, x), [x])(x)
    assert first.requires_grad
    assert not second.requires_grad
    assert torch.is_grad_enabled()


def test_traces_decline_what_they_cannot_hold() -> None:
    x = torch.randn(3, requires_grad=True)
    assert BACKENDS["ts"](build(no_grad_inside, x), [x]) is None
    assert BACKENDS["ofi"](build(lambda t, x: t("sin", x), x), [x]) is None


def test_no_gpu_no_cudagraph() -> None:
    gm = build(lambda t, x: t("sin", x), torch.randn(3))
    assert BACKENDS["tensorrt"](gm, [torch.randn(3)]) is None
    assert BACKENDS["cudagraphs"](gm, [torch.randn(3)]) is None


# -- graphs of other makes ---------------------------------------------------------------------------------------------
class Outside(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        x.add_(1)
        return {"out": [self.norm(self.linear(x) + y)], "y": y}


@pytest.mark.parametrize("name", ["aot_eager", "aot_eager_decomp_partition"])
@pytest.mark.parametrize("trained", [True, False])
def test_a_plain_graph_that_owns_its_parameters(name: str, trained: bool) -> None:
    gm = torch.fx.symbolic_trace(Outside())
    mine, theirs = copy.deepcopy(gm), copy.deepcopy(gm)
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    with torch.set_grad_enabled(trained):
        compiled = BACKENDS[name](mine, [x.clone(), y])
        a, b = x.clone(), x.clone()
        want, got = theirs(a, y), compiled(b, y)
        torch.testing.assert_close(want, got)
        assert torch.equal(a, b)
        assert torch.equal(got["y"], y)
        if trained:
            want["out"][0].square().sum().backward()
            got["out"][0].square().sum().backward()
            torch.testing.assert_close(theirs.linear.weight.grad, mine.linear.weight.grad)
    torch.testing.assert_close(theirs.norm.running_mean, mine.norm.running_mean)


def test_the_same_tensor_twice() -> None:
    gm = torch.fx.symbolic_trace(lambda a, b: (a + b,))
    x = torch.randn(3, requires_grad=True)
    assert torch.equal(BACKENDS["aot_eager"](gm, [x, x])(x, x)[0], x + x)


def test_the_graph_that_is_handed_over_stays_as_it_was() -> None:
    inputs = mlp_inputs()
    gm = build(mlp, *inputs, static=[1, 2])
    code, metas = gm.code, {node.name: set(node.meta) for node in gm.graph.nodes}
    BACKENDS["aot_eager"](gm, inputs)
    assert gm.code == code
    assert {node.name: set(node.meta) for node in gm.graph.nodes} == metas


# -- compilers of the user's -------------------------------------------------------------------------------------------
def test_own_compilers_get_functional_graphs_of_both_passes() -> None:
    graphs: list[tuple[str, torch.fx.GraphModule]] = []

    def forward(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        graphs.append(("forward", gm))
        return gm.forward

    def backward(gm: torch.fx.GraphModule, example_inputs: Any) -> None:
        graphs.append(("backward", gm))

    inputs = [t.requires_grad_() for t in mlp_inputs()]
    gm = build(mlp, *inputs)
    backend = aot_autograd(forward, backward)
    assert all(map(torch.equal, grads(gm, inputs), grads(backend(gm, inputs), inputs)))
    assert [name for name, _ in graphs] == ["forward", "backward"]
    for _, graph in graphs:
        targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
        assert targets
        assert all(isinstance(t, (torch._ops.OpOverload, type(operator.getitem))) for t in targets)


def test_inference_makes_no_backward() -> None:
    made: list[Any] = []

    def compiler(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        made.append(len(gm.graph.find_nodes(op="output")[0].args[0]))
        return gm.forward

    inputs = [t.requires_grad_() for t in mlp_inputs()]
    gm = build(mlp, *inputs)
    with torch.no_grad():
        aot_autograd(compiler)(gm, inputs)(*inputs)
    assert made == [2]


def test_decompositions_and_partition_are_used() -> None:
    calls: list[str] = []
    seen: list[Any] = []

    def table() -> dict[Any, Any]:
        calls.append("table")
        return {torch.ops.aten.relu.default: lambda x: torch.ops.aten.clamp_min(x, 0)}

    def partition(joint: Any, inputs: Any, **kwargs: Any) -> Any:
        from torch._functorch.partitioners import default_partition

        calls.append("partition")
        return default_partition(joint, inputs, **kwargs)

    def compiler(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        seen.extend(node.target for node in gm.graph.nodes)
        return gm.forward

    inputs = [t.requires_grad_() for t in mlp_inputs()]
    gm = build(mlp, *inputs)
    aot_autograd(compiler, partition_fn=partition, decompositions=table)(gm, inputs)
    assert calls == ["table", "partition"]
    assert torch.ops.aten.clamp_min.default in seen
    assert torch.ops.aten.relu.default not in seen


def test_compilers_learn_what_is_fixed() -> None:
    """Sizes are numbers, and the inputs whose memory stays are known, so that CUDA graphs need not copy them."""
    seen: list[Any] = []

    def compiler(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        context = torch._guards.TracingContext.get()
        assert context.fw_metadata is not None
        seen.append(sorted(context.fw_metadata.static_input_indices))
        seen.extend(type(size) for tensor in example_inputs for size in tensor.shape)
        return gm.forward

    inputs = mlp_inputs()
    gm = build(mlp, *inputs, static=[1, 2])
    aot_autograd(compiler)(gm, inputs)
    assert seen[0] == [1, 2]
    assert set(seen[1:]) == {int}


def test_views_of_one_base_as_inputs() -> None:
    base = torch.randn(4, 4)
    inputs = [base[0], base[1], base.t()]
    gm = build(lambda t, x, y, z: t(operator.add, t(operator.add, x, y), z), *inputs)
    assert torch.equal(BACKENDS["aot_eager"](gm, inputs)(*inputs)[0], gm(*inputs)[0])


def test_a_graph_without_inputs() -> None:
    gm = build(lambda t: t(torch.ones, 3))
    for name in ("aot_eager", "eager"):
        assert torch.equal(BACKENDS[name](gm, [])()[0], torch.ones(3))
    assert BACKENDS["ts"](gm, []) is None

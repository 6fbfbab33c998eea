"""Backends as torch's documentation has users write them: right at every size and number, whatever traces the graph."""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.fx
from functorch.compile import (
    aot_function,
    aot_module,
    make_boxed_func,
    min_cut_rematerialization_partition,
    nop,
)
from torch._functorch.aot_autograd import aot_module_simplified
from torch.fx.experimental.proxy_tensor import make_fx

import torchdynamo
from torchdynamo.backends.recursion_limit import recursion_limit_restored
from torchdynamo.errors import FallbackWarning
from torchdynamo.optimizations import BACKENDS, aot_autograd

LONG = pytest.mark.long
RECIPES: dict[str, Callable[..., Any]] = {}
KEEPS = set[str]()  # recipes that keep sizes and ints as symbols: one compile serves all


def recipe(fn: Any = None, *, keeps: bool = False) -> Any:
    if fn is None:
        return functools.partial(recipe, keeps=keeps)
    RECIPES[fn.__name__] = fn
    if keeps:
        KEEPS.add(fn.__name__)
    return fn


def boxed(gm: Any, inputs: Any) -> Any:
    return make_boxed_func(gm.forward)


def tensors(args: Sequence[Any]) -> list[torch.Tensor]:
    return [each for each in args if isinstance(each, torch.Tensor)]


# -- the graph as it is ------------------------------------------------------------------------------------------------
@recipe(keeps=True)
def forward(gm: Any, inputs: Any) -> Any:
    return gm.forward


@recipe(keeps=True)
def module(gm: Any, inputs: Any) -> Any:
    return gm


@recipe(keeps=True)
def closure(gm: Any, inputs: Any) -> Any:
    return lambda *args: gm(*args)


@recipe(keeps=True)
def interpreter(gm: Any, inputs: Any) -> Any:
    return torch.fx.Interpreter(gm).run


@recipe(keeps=True)
def transformer(gm: Any, inputs: Any) -> Any:
    return torch.fx.Transformer(gm).transform()


@recipe(keeps=True)
def looks_at_sizes(gm: Any, inputs: Any) -> Any:
    assert all(str(each.shape) for each in tensors(inputs))
    return gm.forward


@recipe
def runs_it_first(gm: Any, inputs: Any) -> Any:
    gm(*inputs)
    return lambda *args: gm.forward(*args)


# -- traced again ------------------------------------------------------------------------------------------------------
@recipe(keeps=True)
def aot_simplified(gm: Any, inputs: Any) -> Any:
    return aot_module_simplified(gm, inputs, fw_compiler=boxed)


@recipe(keeps=True)
def aot_simplified_min_cut(gm: Any, inputs: Any) -> Any:
    return aot_module_simplified(
        gm, inputs, fw_compiler=boxed, bw_compiler=boxed, partition_fn=min_cut_rematerialization_partition
    )


@recipe(keeps=True)
def aot_of_torch(gm: Any, inputs: Any) -> Any:
    from torch._dynamo.backends.common import aot_autograd as registered

    return registered(fw_compiler=boxed)(gm, inputs)


@recipe(keeps=True)
def aot_of_ours(gm: Any, inputs: Any) -> Any:
    return aot_autograd(lambda gm, inputs: gm.forward)(gm, inputs)


@recipe(keeps=True)
def by_name(gm: Any, inputs: Any) -> Any:
    return BACKENDS["aot_eager"](gm, inputs)


@recipe(keeps=True)
def by_name_of_torch(gm: Any, inputs: Any) -> Any:
    from torch._dynamo import lookup_backend

    return lookup_backend("aot_eager")(gm, inputs)


@recipe(keeps=True)
def by_name_of_a_new_module(gm: Any, inputs: Any) -> Any:
    return BACKENDS["aot_eager"](torch.fx.GraphModule(torch.nn.Module(), gm.graph), inputs)


@recipe
def make_fx_of_values(gm: Any, inputs: Any) -> Any:
    return make_fx(gm)(*inputs)


@recipe(keeps=True)
def make_fx_of_fakes(gm: Any, inputs: Any) -> Any:
    return make_fx(gm, tracing_mode="fake")(*inputs)


@recipe(keeps=True)
def make_fx_of_symbols(gm: Any, inputs: Any) -> Any:
    return make_fx(gm, tracing_mode="symbolic")(*inputs)


@recipe(keeps=True)
def traced_then_by_name(gm: Any, inputs: Any) -> Any:
    return BACKENDS["aot_eager"](make_fx(gm, tracing_mode="symbolic")(*inputs), inputs)


@recipe
def functionalized(gm: Any, inputs: Any) -> Any:
    return make_fx(torch.func.functionalize(gm))(*inputs)


@recipe
def jit_trace(gm: Any, inputs: Any) -> Any:
    return torch.jit.trace(gm, tuple(inputs))  # type: ignore[no-untyped-call]


@recipe
def jit_script(gm: Any, inputs: Any) -> Any:
    return torch.jit.script(gm)


@recipe
def export(gm: Any, inputs: Any) -> Any:
    return torch.export.export(gm, tuple(inputs)).module()


# -- traced when it is first called ------------------------------------------------------------------------------------
@recipe
def aot_of_a_function(gm: Any, inputs: Any) -> Any:
    return aot_function(gm.forward, fw_compiler=nop)


@recipe
def aot_of_a_module(gm: Any, inputs: Any) -> Any:
    return aot_module(gm, fw_compiler=nop, partition_fn=min_cut_rematerialization_partition)


def at_first_call(trace: Callable[..., Any]) -> Callable[..., Any]:
    made: list[Any] = []

    def run(*args: Any) -> Any:
        if not made:
            made.append(trace(*args))
        return made[0](*args)

    return run


@recipe
def make_fx_at_first_call(gm: Any, inputs: Any) -> Any:
    return at_first_call(lambda *args: make_fx(gm)(*args))


@recipe
def jit_trace_at_first_call(gm: Any, inputs: Any) -> Any:
    return at_first_call(lambda *args: torch.jit.trace(gm, args))  # type: ignore[no-untyped-call]


# -- by what it reads off its inputs -----------------------------------------------------------------------------------
@recipe
def for_these_sizes(gm: Any, inputs: Any) -> Any:
    """A kernel for what was given, which answers zeros for anything else."""

    def numbers(args: Sequence[Any]) -> list[float]:
        sizes = [int(size) for each in tensors(args) for size in each.shape]
        return sizes + [float(each) for each in args if not isinstance(each, torch.Tensor)]

    made_for = numbers(inputs)

    def run(*args: Any) -> Any:
        results = gm.forward(*args)
        return results if numbers(args) == made_for else [torch.zeros_like(each) for each in results]

    return run


# -- programs ----------------------------------------------------------------------------------------------------------
def by_an_int(x: Any, d: int) -> Any:
    return torch.add(x, x.sin(), alpha=d)


def by_a_float(x: Any, s: float) -> Any:
    return x.mul(s + 1.0).exp() * s


def by_a_size(x: Any) -> Any:
    return x.reshape(-1) * x.size(0)


def by_parts(x: Any) -> Any:
    return torch.cov(x) + x.view(2, -1, x.shape[1]).sum().expand(x.shape[0], 1)


def grown(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


PROGRAMS = {
    by_an_int: [(grown(3), d) for d in (5, 6, 7, 0)],
    by_a_float: [(grown(3), s) for s in (0.5, 1.5, -0.0, 0.0)],
    by_a_size: [(grown(n, 2),) for n in (3, 5, 1, 7)],
    by_parts: [(grown(n, 3),) for n in (4, 6, 2, 8)],
}


def outcome(f: Any, args: Sequence[Any], training: bool) -> list[torch.Tensor]:
    """The result, and the gradients."""
    given = [a.clone().requires_grad_(training) if isinstance(a, torch.Tensor) else a for a in args]
    with torch.set_grad_enabled(training):
        result = f(*given)
    assert result.requires_grad is training
    if training:
        result.sum().backward()
    return [result.detach(), *(each.grad for each in tensors(given) if each.grad is not None)]


@pytest.mark.parametrize(
    ("dynamic", "both"), [(True, False), *(pytest.param(None, both, marks=LONG) for both in (False, True))]
)
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_recipe_is_right_for_all_values(name: str, dynamic: bool | None, both: bool) -> None:
    for training in (False, True):
        for program, calls in PROGRAMS.items():
            if not both and (training is (program in (by_an_int, by_a_size))) is bool(dynamic):
                continue  # either by default, and the other with dynamic=True: these take their time
            compiles: list[Any] = []

            def backend(gm: Any, inputs: Any, compiles: list[Any] = compiles) -> Any:
                compiles.append(gm)
                return RECIPES[name](gm, inputs)

            torchdynamo.reset()
            fn = types.FunctionType(program.__code__, program.__globals__)
            compiled = torchdynamo.compile(fn, backend=backend, dynamic=dynamic)
            with warnings.catch_warnings():
                warnings.simplefilter("error", FallbackWarning)
                for args in calls:
                    torch.testing.assert_close(outcome(compiled, args, training), outcome(program, args, training))
            if name in KEEPS:
                assert len(compiles) <= (2 if dynamic is None or program is by_a_float else 1), program.__name__
            else:
                assert len(compiles) <= len(calls) + 1, program.__name__


@pytest.mark.parametrize("training", [False, True])
def test_inductor_itself_keeps_symbols(training: bool) -> None:
    from torch._inductor.compile_fx import compile_fx

    made: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        made.append(gm)
        with recursion_limit_restored():
            return compile_fx(gm, inputs)

    compiled = torchdynamo.compile(by_a_size, backend=backend, dynamic=True)
    for args in PROGRAMS[by_a_size]:
        torch.testing.assert_close(outcome(compiled, args, training), outcome(by_a_size, args, training))
    assert len(made) == 1


@pytest.mark.parametrize("name", ["jit_trace", "make_fx_of_values", "make_fx_at_first_call"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_values_read_from_tensors_are_not_constants(name: str) -> None:
    """There is no graph for each of these: it runs operator by operator, whatever was made of it."""

    def scaled(x: Any) -> Any:
        return x * x.sum().item()

    compiled = torchdynamo.compile(scaled, backend=RECIPES[name])
    with torchdynamo.config.patch(capture_scalar_outputs=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        for n in range(4):
            x = torch.arange(3.0) + n
            assert torch.equal(compiled(x), scaled(x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_after_as_many_values_as_allowed_it_runs_eagerly() -> None:
    compiled = torchdynamo.compile(by_a_size, backend=jit_trace, dynamic=True)
    with torchdynamo.config.patch(cache_size_limit=3), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FallbackWarning)
        for n in range(6):
            x = torch.randn(n, 2)
            assert torch.equal(compiled(x), by_a_size(x))
    assert ["made 3 graphs of one" in str(each.message) for each in caught] == [True]

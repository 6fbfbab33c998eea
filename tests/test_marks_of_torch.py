"""What programs say to torch.compile is honoured by us, or refused with a reason."""

from __future__ import annotations

import _bisect
import contextlib
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo

import torchdynamo
from torchdynamo import exc, stances

X = torch.ones(3)


class Counting:
    """A backend that remembers its graphs, as lists of the operations' names."""

    def __init__(self) -> None:
        self.graphs: list[list[str]] = []

    def __call__(self, gm: Any, example_inputs: Any) -> Any:
        calls = [node for node in gm.graph.nodes if node.op.startswith("call_")]
        self.graphs.append([getattr(node.target, "__name__", str(node.target)) for node in calls])
        return gm.forward


def graphs_of(fn: Any, *args: Any, **settings: Any) -> list[list[str]]:
    """The graphs of two calls, which give what eager gives."""
    torchdynamo.reset()
    backend = Counting()
    compiled = torchdynamo.compile(fn, backend=backend, **settings)
    for _ in range(2):
        assert torch.equal(compiled(*args), fn(*args))
    return backend.graphs


def inner(x):
    return x * 2


# -- functions ---------------------------------------------------------------------------------------------------------
@torch.compiler.disable
def disabled(x):
    return inner(x) + 1


@torch.compiler.disable(recursive=False)
def not_itself(x):
    return inner(x) + 1


@torch.compiler.allow_in_graph
def allowed(x):
    return x * 2


@torch.compiler.allow_in_graph
def printing(x):
    sys._getframe()
    return x * 2


@torch._dynamo.nonstrict_trace
def nonstrict(x):
    return x * 3


@torch.compiler.nested_compile_region
def region(x):
    return x.sin()


def as_region(x):
    return region(x) + region(x)


@torchdynamo.skip
def skipped(x):
    return inner(x) + 1


FUNCTIONS = {
    "disable": (lambda x: disabled(x + 1) * 3, [["add"], ["mul"]]),  # nothing of `disabled` or `inner`
    "disable, not recursive": (lambda x: not_itself(x + 1) * 3, [["add"], ["mul"], ["mul"]]),
    "allow_in_graph": (lambda x: allowed(x) + 1, [["mul", "add"]]),  # a graph of operators
    "allow_in_graph, not followed": (lambda x: printing(x) + 1, [["printing", "add"]]),
    "nonstrict_trace": (lambda x: nonstrict(x) + 1, [["mul", "add"]]),
    "graph_break": (lambda x: (x + 1, torch._dynamo.graph_break())[0] * 2, [["add"], ["mul"]]),
    "nested_compile_region": (as_region, [["sin", "sin", "add"]]),
    "ours: skip": (skipped, [["mul"]]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    fn, wanted = FUNCTIONS[name]
    assert graphs_of(fn, X) == wanted


def test_a_library_function_that_is_disallowed_ends_the_graph() -> None:
    torch._dynamo.disallow_in_graph(torch.sub)
    try:
        assert graphs_of(lambda x: torch.sub(x + 1, 1) * 2, X) == [["add"], ["mul"]]
    finally:
        torch._dynamo.allow_in_graph(torch.sub)
    assert graphs_of(lambda x: torch.sub(x + 1, 1) * 2, X) == [["add", "sub", "mul"]]


def test_a_result_that_is_assumed_constant_is_asked_for_once() -> None:
    asked = []

    @torch.compiler.assume_constant_result
    def number():
        asked.append(1)
        return 7

    compiled = torchdynamo.compile(lambda x: x * number(), backend="eager", fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(X), X * 7)
    assert asked == [1]


class Asked:
    number = 2

    @torch.compiler.assume_constant_result
    def times(self, factor=1):
        return self.number * factor

    @classmethod
    @torch.compiler.assume_constant_result
    def of_class(cls):
        return cls.number


def test_methods_whose_result_is_assumed_constant() -> None:
    """They run on the object that is there, and another object is asked as well."""

    def fn(x, it):
        return x * it.times() * it.times(factor=3) * it.of_class()

    def written(x, it):
        it.number = 7
        return x * it.times()

    compiled = torchdynamo.compile(fn, backend="eager", fullgraph=True)
    one, other = Asked(), Asked()
    other.number = 5
    for it in (one, other, one):
        assert torch.equal(compiled(X, it), fn(X, it))
    assert torch.equal(torchdynamo.compile(written, backend="eager")(X, one), X * 7)


def test_a_forbidden_function_is_an_error() -> None:
    @torch._dynamo.forbid_in_graph
    def forbidden(x):
        return x + 1

    compiled = torchdynamo.compile(lambda x: forbidden(x) * 2, backend="eager")
    for _ in range(2):
        with pytest.raises(exc.ForbiddenFunction, match="forbidden is marked by forbid_in_graph"):
            compiled(X)


def test_what_substitutes_a_function_of_c_is_followed() -> None:
    """Where nothing is known of the function."""

    @torch.compiler.substitute_in_graph(_bisect.insort_left, skip_signature_check=True)
    def insort_left(a, x):
        a.append(x)
        a.sort()

    def fn(x):
        numbers = [3, 1]
        _bisect.insort_left(numbers, 2)
        return x * len(numbers)

    torchdynamo.reset()
    backend = Counting()
    compiled = torchdynamo.compile(fn, backend=backend, fullgraph=True)
    assert torch.equal(compiled(X), X * 3)
    assert backend.graphs == [["mul"]]


@pytest.mark.parametrize(("backend", "whole"), [("eager", False), ("eager", True), ("aot_eager", True)])
def test_a_leaf_function_runs_in_python(backend: str, whole: bool) -> None:
    make = getattr(torch._dynamo.decorators, "leaf_function", None)
    if make is None:
        pytest.skip("new in PyTorch 2.11")
    if whole and not hasattr(torch._dynamo.decorators, "_invoke_leaf_function_python"):
        pytest.skip("before PyTorch 2.13 it would run while it is captured")
    ran = []

    @make
    def leaf(x):
        ran.append(1)
        return (x + 1,)

    @leaf.register_fake
    def _(x):
        return (torch.empty_like(x),)

    compiled = torchdynamo.compile(lambda x: leaf(x * 2)[0] * 3, backend=backend, fullgraph=whole)
    for count in (1, 2):
        x = X.clone().requires_grad_()
        result = compiled(x)
        assert torch.equal(result, X * 9)
        assert len(ran) == count
        result.sum().backward()
        assert torch.equal(x.grad, X * 6)


@torch._dynamo.nonstrict_trace
def with_dicts(given, times=2):
    torch._dynamo.graph_break()
    return {"a": given["x"] * times, 1: [given["y"], 3], "c": "text"}, given["x"].dim()


def calls_with_dicts(x):
    given = {"x": x}
    given["y"] = x + 1
    found, dims = with_dicts(given, times=3)
    return found, found["a"] + found[1][0] * found[1][1] + len(found["c"]) + dims


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_function_of_the_graph_takes_and_gives_dicts(backend: str) -> None:
    compiled = torchdynamo.compile(calls_with_dicts, backend=backend, fullgraph=True)
    for _ in range(2):
        (found, result), (theirs, wanted) = compiled(X), calls_with_dicts(X)
        assert torch.equal(result, wanted)
        assert list(found) == list(theirs)
        assert found[1][1:] == theirs[1][1:]


def test_is_compiling_is_true_while_capturing_only() -> None:
    def asks(x):
        asked = (torch.compiler.is_compiling(), torch.compiler.is_dynamo_compiling(), torch._dynamo.is_compiling())
        return x + 1 if all(asked) and torchdynamo.is_compiling() and not torch.compiler.is_exporting() else x - 1

    assert torch.equal(torchdynamo.compile(asks, backend="eager", fullgraph=True)(X), X + 1)
    assert torch.equal(asks(X), X - 1)


# -- error_on_graph_break ----------------------------------------------------------------------------------------------
def breaks(x):
    torch._dynamo.graph_break()
    return x + 1


def breaks_in_a_block(x, is_error=True):
    with torch._dynamo.error_on_graph_break(is_error):
        return breaks(x)


def allowed_in_a_block(x):
    return breaks_in_a_block(x, False)


def allowed_in_a_loop(x):
    for _ in range(3):
        with torch._dynamo.error_on_graph_break(False):
            torch._dynamo.graph_break()
        x = x + 1
    return x


def allowed_to_branch(x):
    with torch._dynamo.error_on_graph_break(False):
        return x + 1 if x.sum() > 0 else x - 1


def whole_blocks(x):
    asked = torch._dynamo.eval_frame._get_error_on_graph_break
    found = []
    try:
        with torch._dynamo.error_on_graph_break(True):
            found.append(asked())
            with torch._dynamo.error_on_graph_break(False):
                found.append(asked())
            raise ValueError
    except ValueError:
        found.append(asked())
    return x + 1, found


needs_blocks = pytest.mark.skipif(not hasattr(torch._dynamo, "error_on_graph_break"), reason="new in PyTorch 2.9")


@needs_blocks
def test_breaks_can_be_made_errors() -> None:
    torchdynamo.reset()
    decorated = torch._dynamo.error_on_graph_break(True)(breaks)
    for fn in (lambda x: decorated(x), breaks_in_a_block, lambda x: breaks_in_a_block(x * 2)):
        with pytest.raises(exc.Unsupported, match="graph_break"):
            torchdynamo.compile(fn, backend="eager")(X)
        assert torch._dynamo.eval_frame._get_error_on_graph_break() is False
    assert torch.equal(torchdynamo.compile(breaks, backend="eager")(X), X + 1)


@needs_blocks
@pytest.mark.parametrize("fn", [allowed_in_a_block, allowed_in_a_loop, allowed_to_branch])
def test_breaks_can_be_allowed_within_what_makes_them_errors(fn: Callable[..., torch.Tensor]) -> None:
    torchdynamo.reset()
    with torch._dynamo.error_on_graph_break(True):
        for _ in range(2):
            assert torch.equal(torchdynamo.compile(fn, backend="eager")(X), fn(X))
            assert torch._dynamo.eval_frame._get_error_on_graph_break()
    torchdynamo.reset()
    with pytest.raises(exc.Unsupported):
        torchdynamo.compile(fn, backend="eager", fullgraph=True)(X)


@needs_blocks
def test_a_block_that_asks_for_errors_is_followed() -> None:
    torchdynamo.reset()
    compiled = torchdynamo.compile(whole_blocks, backend="eager", fullgraph=True)
    for is_error in (False, True, False):
        with torch._dynamo.error_on_graph_break(is_error):
            result, found = compiled(X)
            assert torch.equal(result, X + 1)
            assert found == [True, False, is_error]


# -- blocks that set torch.compile's settings --------------------------------------------------------------------------
def settings_set(x):
    with torch._dynamo.patch_dynamo_config(verbose=False), torch._dynamo.dont_skip_tracing():
        x = x + 1
    return decorated_with_settings(x) + torch._dynamo.dont_skip_tracing(adds)(x)


def setting_unknown(x):
    with torch._dynamo.patch_dynamo_config(nonexistent=1):
        return x


def setting_refused(x):
    with torch._dynamo.patch_dynamo_config("recompile_limit", 1):
        return x


patches = getattr(torch._dynamo, "patch_dynamo_config", None)
needs_patches = pytest.mark.skipif(patches is None, reason="new in PyTorch 2.8")
decorated_with_settings = patches(verbose=False)(lambda x: x * 2) if patches else None


@needs_patches
def test_blocks_that_set_settings_end_no_graph() -> None:
    torchdynamo.reset()
    backend = Counting()
    compiled = torchdynamo.compile(settings_set, backend=backend, fullgraph=True)
    assert torch.equal(compiled(X), settings_set(X))
    assert len(backend.graphs) == 1


@needs_patches
@pytest.mark.parametrize("fn", [setting_unknown, setting_refused])
def test_settings_are_refused_as_they_are_there(fn: Callable[..., torch.Tensor]) -> None:
    with pytest.raises((ValueError, AttributeError)) as theirs:
        fn(X)
    with pytest.raises(theirs.type) as ours:
        torchdynamo.compile(fn, backend="eager")(X)
    assert str(ours.value) == str(theirs.value)


# -- the stance --------------------------------------------------------------------------------------------------------
def adds(x):
    return x + 1


@contextlib.contextmanager
def compiled_once() -> Iterator[tuple[Any, list[list[str]]]]:
    torchdynamo.reset()
    backend = Counting()
    compiled = torchdynamo.compile(adds, backend=backend)
    compiled(X)
    yield compiled, backend.graphs
    del backend.graphs[:]
    compiled(X)
    assert backend.graphs == []  # as before
    compiled(X.int())
    assert len(backend.graphs) == 1


# by stance: how many graphs calls with tensors of a known kind, and twice of a new one, make
STANCES = {
    "default": 1,
    "force_eager": 0,
    "eager_on_recompile": 0,
    "eager_then_compile": 1,
    "aot_eager_then_compile": 1,
}


@pytest.mark.parametrize("stance", STANCES)
def test_stances(stance: str) -> None:
    with compiled_once() as (compiled, graphs), torch.compiler.set_stance(stance):
        before = len(graphs)
        for x in (X, X.double(), X.double()):
            assert torch.equal(compiled(x), x + 1)
        assert len(graphs) - before == STANCES[stance]


def scaled(n, x, held):
    return x * n * held[0]


def scaled_in_parts(n, x, held):
    x = x.sin()
    torch._dynamo.graph_break()
    return x.cos() * n * held[0]


@pytest.mark.parametrize(("fn", "graphs"), [(scaled, 1), (scaled_in_parts, 2)])
def test_what_differs_from_the_call_that_ran_eagerly_is_dynamic(fn: Callable[..., torch.Tensor], graphs: int) -> None:
    torchdynamo.reset()
    backend = Counting()
    compiled = torchdynamo.compile(fn, backend=backend)
    with torch.compiler.set_stance("eager_then_compile"):
        for n in range(2, 6):
            given = n, torch.rand(n), {0: torch.rand(n)}
            assert torch.equal(compiled(*given), fn(*given))
            assert len(backend.graphs) == (graphs if n > 2 else 0)


def test_force_eager_runs_nothing_that_is_compiled() -> None:
    ran = []

    def backend(gm, example_inputs):
        return lambda *args: (ran.append(1), gm.forward(*args))[1]

    compiled = torchdynamo.compile(adds, backend=backend)
    for _ in range(2):
        compiled(X)
    with torch.compiler.set_stance("force_eager"):
        compiled(X)
        with torchdynamo.optimize(backend):
            adds(X)
    decorated = torch.compiler.set_stance("force_eager")(lambda: compiled(X))
    decorated()
    assert len(ran) == 2
    compiled(X)
    assert len(ran) == 3


def test_a_stance_may_be_set_inside() -> None:
    """It ends the graph, and holds for what comes after it."""

    def fn(x):
        x = x * 2
        with torch.compiler.set_stance("force_eager"):
            x = x + 1
        return x * 3

    assert graphs_of(fn, X)[0] == ["mul"]


def test_fail_on_recompile_says_what_changed() -> None:
    with compiled_once() as (compiled, _), torch.compiler.set_stance("fail_on_recompile"):
        assert torch.equal(compiled(X), X + 1)
        with pytest.raises(exc.RecompileError, match=r"(?s)adds .*would be compiled.*float32 -> torch.float64"):
            compiled(X.double())


def test_a_reason_for_disabling_is_told() -> None:
    noted = torch.compiler.disable(lambda x: x, reason="it talks")
    with pytest.raises(exc.Unsupported, match=r"torch.compiler.disable\): it talks\."):
        torchdynamo.compile(lambda x: noted(x) + 1, backend="eager", fullgraph=True)(X)


def test_a_stance_with_a_backend() -> None:
    """What is compiled for either backend stays apart, continuations too, and is used again."""

    def fn(x):
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    mine, other = Counting(), Counting()
    compiled = torchdynamo.compile(fn, backend=mine)
    for _ in range(2):
        with torch.compiler.set_stance("default", force_backend=other):
            assert torch.equal(compiled(X), fn(X))
            assert torch.equal(compiled(X), fn(X))
        assert torch.equal(compiled(X), fn(X))
    assert [len(mine.graphs), len(other.graphs)] == [2, 2]


def test_a_stance_with_a_backend_that_fails() -> None:
    """Graphs that must be whole stay so, and a backend that does not exist is told."""
    with compiled_once() as (compiled, _), torch.compiler.set_stance("default", force_backend="nonesuch"):
        for _ in range(2):
            with pytest.raises(exc.UnknownBackend, match="nonesuch"):
                compiled(X)
    breaks = torchdynamo.compile(lambda x: (torch._dynamo.graph_break(), x + 1), backend="eager", fullgraph=True)
    with torch.compiler.set_stance("default", force_backend="aot_eager"), pytest.raises(exc.Unsupported):
        breaks(X)


# -- settings ----------------------------------------------------------------------------------------------------------
def told(**changes: Any) -> list[str]:
    torchdynamo.reset()
    stances._told.clear()
    with torch._dynamo.config.patch(**changes), warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        for _ in range(2):
            torchdynamo.compile(adds, backend=Counting())(X)
    return [str(each.message) for each in log if issubclass(each.category, exc.TorchDynamoWarning)]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"recompile_limit": 3}, "recompile_limit was set, .* here is torchdynamo.config.cache_size_limit"),
        ({"capture_scalar_outputs": True}, "torchdynamo.config.capture_scalar_outputs"),
        ({"automatic_dynamic_shapes": False}, r"torchdynamo.compile\(dynamic=False\)"),
        ({"error_on_recompile": True}, "torchdynamo.config.error_on_recompile"),
        (
            {"guard_nn_modules": False},
            "guard_nn_modules was set, which is a setting of torch.compile: it has no meaning",
        ),
    ],
)
def test_settings_of_torch_compile_are_refused_once(changes: Any, text: str) -> None:
    (said,) = told(**changes)
    assert re.search(text, said)


def test_settings_that_say_what_is_done_anyway() -> None:
    assert told(suppress_errors=True) == []
    assert told() == []


def test_torch_compile_switched_off_switches_us_off() -> None:
    backend = Counting()
    compiled = torchdynamo.compile(adds, backend=backend)
    with torch._dynamo.config.patch(disable=True):
        compiled(X)
    assert backend.graphs == []
    compiled(X)
    assert backend.graphs == [["add"]]

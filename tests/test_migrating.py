"""Every name of torch.compile has a row in docs/migrating.md, and is what the row says."""

from __future__ import annotations

import _bisect
import inspect
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import migrating
import pytest
import torch
from migrating import KEYWORDS, NAMES, OWN, REFUSED, SAME

import torchdynamo
from torchdynamo import exc, stances

DOCS = Path(__file__).parent.parent / "docs" / "migrating.md"
X = torch.ones(3)
CHECKS: dict[str, Callable[[], object]] = {}


def checks(*names: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Decorate the check of these names; a keyword has `=` behind it."""

    def keep(check: Callable[[], object]) -> Callable[[], object]:
        CHECKS.update(dict.fromkeys(names, check))
        return check

    return keep


class Counting:
    """A backend that counts its graphs, and keeps what it was called with beside these."""

    def __init__(self) -> None:
        self.graphs = 0
        self.given: dict[str, Any] = {}

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Any, **given: Any) -> Any:
        self.graphs += 1
        self.given = given
        return gm.forward


def adds(x: torch.Tensor, n: int = 1) -> torch.Tensor:
    return x + n


def breaks(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x + 1
    return x - 1


def named(x: torch.Tensor, name: str) -> torch.Tensor:
    return x * len(name)


def graphs_of(fn: Any, *calls: Any, **settings: Any) -> int:
    """The number of graphs of calls, each of which gives what eager gives."""
    backend = Counting()
    compiled = torchdynamo.compile(fn, backend=backend, **settings)
    for args in calls:
        assert torch.equal(compiled(*args), fn(*args))
    return backend.graphs


def warned(settings: dict[str, Any]) -> str:
    """What one compile with settings warns of; a second one warns of nothing."""
    said = []
    for _ in range(2):
        with warnings.catch_warnings(record=True) as log:
            warnings.simplefilter("always")
            torchdynamo.compile(adds, backend=Counting(), **settings)(X)
        said.append([str(each.message) for each in log if issubclass(each.category, exc.TorchDynamoWarning)])
    assert said[1] == []
    return "\n".join(said[0])


# -- the table ---------------------------------------------------------------------------------------------------------
def test_every_keyword_has_a_row() -> None:
    assert set(inspect.signature(torch.compile).parameters) - KEYWORDS.keys() == set()


def test_every_name_of_torch_compiler_has_a_row() -> None:
    assert set(torch.compiler.__all__) - NAMES.keys() == set()


def test_verdicts_are_three() -> None:
    rows = [*KEYWORDS.values(), *NAMES.values()]
    assert {row.verdict for row in rows} == {SAME, OWN, REFUSED}
    assert all(row.text for row in rows if row.verdict != SAME)


@pytest.mark.parametrize("first", migrating.TABLES)
def test_the_documentation_has_these_rows(first: str) -> None:
    wanted = "\n".join(migrating.table(first, migrating.TABLES[first]))
    assert f"\n\n{wanted}\n\n" in DOCS.read_text(), "python tests/migrating.py prints the tables"


def test_every_row_has_a_check() -> None:
    assert CHECKS.keys() == {f"{name}=" for name in KEYWORDS} | NAMES.keys()


def test_names_of_ours_are_there() -> None:
    for row in [*KEYWORDS.values(), *NAMES.values()]:
        for part in row.text.split("`torchdynamo.")[1:]:
            name = part.split("`")[0].removesuffix("()")
            assert hasattr(torchdynamo, name), name


@pytest.mark.parametrize("name", [*(f"{name}=" for name in KEYWORDS), *NAMES])
def test_a_row(name: str) -> None:
    if not name.endswith("=") and not hasattr(torch.compiler, name):
        pytest.skip(f"this version of PyTorch has no {name}")
    torchdynamo.reset()
    stances._told.clear()
    CHECKS[name]()


# -- keywords ----------------------------------------------------------------------------------------------------------
@checks("model=")
def _() -> None:
    assert torch.equal(torchdynamo.compile(adds, backend="eager")(X), X + 1)
    assert torch.equal(torchdynamo.compile(backend="eager")(adds)(X), X + 1)


@checks("fullgraph=")
def _() -> None:
    assert graphs_of(breaks, (X,)) == 2
    with pytest.raises(exc.Unsupported):
        torchdynamo.compile(breaks, backend="eager", fullgraph=True)(X)


@checks("dynamic=")
def _() -> None:
    calls = [(torch.ones(n),) for n in (3, 4, 5)]
    assert [graphs_of(adds, *calls, dynamic=each) for each in (False, None, True)] == [3, 2, 1]


@checks("backend=", "set_default_backend", "get_default_backend")
def _() -> None:
    assert torch.equal(torchdynamo.compile(adds, backend="eager")(X), X + 1)
    if hasattr(torch.compiler, "set_default_backend"):
        torch.compiler.set_default_backend(backend := Counting())
        try:
            torchdynamo.compile(adds)(X)
        finally:
            torch.compiler.set_default_backend(None)
        assert backend.graphs == 1
        assert torch.compiler.get_default_backend() == "inductor"


@checks("mode=", "options=")
def _() -> None:
    for settings in ({"mode": "reduce-overhead"}, {"options": {"a": 1}}):
        backend = Counting()
        torchdynamo.compile(adds, backend=backend, **settings)(X)
        assert backend.given == settings
    with pytest.raises(RuntimeError, match="mode or options, not both"):
        torchdynamo.compile(adds, mode="max-autotune", options={"max_autotune": True})


@checks("name=")
def _() -> None:
    assert "my name" in repr(torchdynamo.compile(backend="eager", name="my name"))


@checks("disable=")
def _() -> None:
    assert torchdynamo.compile(adds, disable=True) is adds


@checks("recompile_limit=")
def _() -> None:
    with pytest.warns(exc.CacheLimitWarning, match="its recompile_limit"):
        assert graphs_of(named, (X, "a"), (X, "bb"), (X, "ccc"), recompile_limit=2) == 2


@checks("isolate_recompiles=")
def _() -> None:
    backend = Counting()
    for _ in range(2):
        torchdynamo.compile(adds, backend=backend, isolate_recompiles=True)(X)
    assert backend.graphs == 2


@checks("shapes_spec=")
def _() -> None:
    with pytest.raises(RuntimeError, match="shapes_spec is not supported"):
        torchdynamo.compile(adds, shapes_spec={})


@checks("dynamic_shapes=")
def _() -> None:
    with pytest.raises(RuntimeError, match="dynamic_shapes is not supported"):
        torchdynamo.compile(adds, dynamic_shapes={})


# -- torch.compiler ----------------------------------------------------------------------------------------------------
@checks("compile")
def _() -> None:
    with torchdynamo.install():
        assert type(torch.compiler.compile(adds, backend="eager")) is type(torchdynamo.compile(adds, backend="eager"))


@checks("config")
def _() -> None:
    if hasattr(torch.compiler.config, "unbacked_sources"):
        with torch.compiler.config.patch(unbacked_sources="L['x']", dynamic_sources="L['x']"):
            said = warned({})
        assert "torch.compiler.config.dynamic_sources was set" in said
        assert "what it is called here is torchdynamo.mark_unbacked" in said


@checks("reset")
def _() -> None:
    backend = Counting()
    compiled = torchdynamo.compile(adds, backend=backend)
    for forget in (lambda: None, torch.compiler.reset, torchdynamo.reset):
        forget()
        compiled(X)
    assert backend.graphs == 2


@checks("list_backends")
def _() -> None:
    assert set(torch.compiler.list_backends()) - {"openxla", "openxla_eval"} <= set(torchdynamo.list_backends())


@checks("set_enable_guard_collectives")
def _() -> None:
    torch.compiler.set_enable_guard_collectives(True)
    try:
        assert "torch.compiler.set_enable_guard_collectives was set" in warned({})
    finally:
        assert torch.compiler.set_enable_guard_collectives(False)  # reading it has left it on


@checks("load_compiled_function")
def _() -> None:
    with pytest.raises(AttributeError, match="aot_compile"):
        torchdynamo.compile(adds, backend="eager").aot_compile  # type: ignore[attr-defined]


@checks(*(name for name, row in NAMES.items() if row is migrating.FILTER))
def _() -> None:
    with pytest.warns(exc.TorchDynamoWarning, match="guard_filter_fn has no effect"):
        graphs_of(adds, (X,), options={"guard_filter_fn": torch.compiler.skip_all_guards_unsafe})


@checks("disable", "assume_constant_result", "allow_in_graph", "nested_compile_region", "wrap_numpy")
def _() -> None:
    for mark, graphs in (
        (torch.compiler.disable, 2),
        (torch.compiler.allow_in_graph, 1),
        (torch.compiler.nested_compile_region, 1),
    ):
        marked: Any = mark(lambda x: x * 2)
        assert graphs_of(lambda x, fn=marked: fn(x + 1) * 3, (X,), (X,)) == graphs
    number: Any = torch.compiler.assume_constant_result(lambda: 7)
    assert graphs_of(lambda x: x * number(), (X,), fullgraph=True) == 1
    on_arrays: Any = torch.compiler.wrap_numpy(lambda x: x + 1)
    assert graphs_of(lambda x: on_arrays(x * 2) + 1, (X,), (X,)) == 2


@checks("substitute_in_graph")
def _() -> None:
    @torch.compiler.substitute_in_graph(_bisect.insort_right, skip_signature_check=True)
    def insort_right(a: list[int], x: int) -> None:
        a.append(x)

    def fn(x: torch.Tensor) -> torch.Tensor:
        numbers = [3]
        _bisect.insort_right(numbers, 2)
        return x * len(numbers)

    assert graphs_of(fn, (X,), fullgraph=True) == 1


@checks("set_stance")
def _() -> None:
    """Check one; the others have tests in test_marks_of_torch.py."""
    compiled = torchdynamo.compile(adds, backend="eager")
    with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(exc.RecompileError):
        compiled(X)
    with torch.compiler.set_stance("default", force_backend="aot_eager"):
        assert torch.equal(compiled(X), X + 1)


@checks("is_compiling", "is_dynamo_compiling", "is_exporting")
def _() -> None:
    def asks(x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling() and torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting():
            return x + 1
        return x - 1

    assert torch.equal(torchdynamo.compile(asks, backend="eager", fullgraph=True)(X), X + 1)
    assert torch.equal(asks(X), X - 1)


@checks("cudagraph_mark_step_begin")
def _() -> None:
    torch.compiler.cudagraph_mark_step_begin()
    assert graphs_of(lambda x: (torch.compiler.cudagraph_mark_step_begin(), x + 1)[1], (X,)) == 1


@checks("save_cache_artifacts", "load_cache_artifacts")
def _() -> None:
    torchdynamo.compile(lambda x: x.sin() + 41)(X)
    saved = torch.compiler.save_cache_artifacts()
    assert saved is not None
    found = torch.compiler.load_cache_artifacts(saved[0])
    assert found is not None
    assert found.inductor_artifacts


# -- the environment ---------------------------------------------------------------------------------------------------
def test_nothing_is_compiled_if_the_environment_says_so() -> None:
    program = """
import torch, torchdynamo
graphs = []
compiled = torchdynamo.compile(lambda x: x + 1, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)
compiled(torch.ones(2))
assert not graphs
"""
    given = {**os.environ, "TORCH_COMPILE_DISABLE": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300, env=given)

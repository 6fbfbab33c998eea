"""Inductor's caches on disk: a second process finds what the first has compiled, and nothing else."""

from __future__ import annotations

import contextlib
import json
import operator
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from warm_start import PROGRAMS

from torchdynamo.backends import cache_key, disk_caches
from torchdynamo.backends.cache_key import Decompositions, facts_of, is_keyed_by_names, marks, state
from torchdynamo.capture.functions.torch_func import exit_dual_level
from torchdynamo.errors import TorchDynamoWarning

Told = dict[str, dict[str, dict[str, int]]]
SCRIPT = Path(__file__).parent / "warm_start.py"
KEPT = [name for name in PROGRAMS if name != "an_operator_of_others"]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What the caches said in two processes, one after the other: by way and program."""
    folder = tmp_path_factory.mktemp("warm")
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "caches")}
    found: Told = {}
    for way in ("cold", "warm"):
        command = [sys.executable, str(SCRIPT), way, str(folder)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.update(json.loads(done.stdout.splitlines()[-1]))
    return found


def counts(word: str, found: dict[str, int]) -> tuple[int, int]:
    """How many of the graphs that Inductor is given were a hit (or a miss), and of those AOTAutograd is given."""
    assert all(name.endswith(word) for name in found), found
    return found[f"fxgraph_cache_{word}"], found[f"autograd_cache_{word}"]


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("way", ["warm", "loaded"])
def test_what_was_compiled_is_found(told: Told, name: str, way: str) -> None:
    graphs, compiles = counts("miss", told["cold"][name])
    assert (graphs, compiles) == (2 if "training" in name else compiles, compiles)
    assert counts("hit", told[way][name]) == (graphs, compiles)


@pytest.mark.parametrize("name", KEPT)
def test_nothing_is_found_that_other_sources_have_compiled(told: Told, name: str) -> None:
    assert counts("miss", told["other"][name]) == counts("miss", told["cold"][name])


def test_what_calls_the_code_of_others_is_not_kept(told: Told) -> None:
    assert all(found["an_operator_of_others"] == {} for found in told.values())


def of_users(x: torch.Tensor) -> torch.Tensor:
    return x + 1


CALLS: list[tuple[Any, bool]] = [
    (torch.sin, True),
    (torch.nn.functional.gelu, True),
    (torch._C._nn.linear, True),
    (torch.ops.aten.sin, True),
    (torch.ops.aten.sin.default, True),
    (torch.Tensor.sin, True),
    (operator.neg, True),
    (exit_dual_level, True),
    (of_users, False),
    (lambda x: x, False),
    (torch.ops.warm_start.theirs, False),
    (torch.ops.warm_start.theirs.default, False),
    (sys.getsizeof, False),
]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("fn", "known"), CALLS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_whose_code_a_graph_calls(fn: Any, known: bool, inside: bool) -> None:
    graph = torch.fx.Graph()
    graph.output(graph.call_function(fn, (graph.placeholder("x"),)))
    gm = torch.fx.GraphModule({}, graph)
    if inside:
        outer = torch.fx.Graph()
        outer.output(outer.get_attr("body"))
        gm = torch.fx.GraphModule({"body": gm}, outer)
    assert is_keyed_by_names(gm) is known


def whole() -> torch.Tensor:
    return torch.ones(4)


def shared() -> list[torch.Tensor]:
    base = whole()
    return [base[:], base[:]]


FACTS: dict[str, tuple[Callable[[], list[torch.Tensor]], Callable[[], list[torch.Tensor]]]] = {
    "a leaf": (lambda: [whole().requires_grad_()], lambda: [whole().requires_grad_() * 1]),
    "a view": (lambda: [whole()], lambda: [whole()[:]]),
    "memory shared": (lambda: [whole()[:], whole()[:]], shared),
}


@pytest.mark.parametrize("name", FACTS)
def test_inputs_that_differ_in_more_than_metadata(name: str) -> None:
    one, other = FACTS[name]
    assert facts_of(one()) == facts_of(one()) != facts_of(other()) == facts_of(other())


def test_what_goes_into_the_keys() -> None:
    graph = torch.fx.Graph()
    graph.call_function(exit_dual_level, (0,))
    graph.output(graph.placeholder("x"))
    gm = torch.fx.GraphModule({}, graph)
    found = marks(gm, [state(), "a fact"], {"user.function": "1"})
    assert set(found) == {"user.function", "torchdynamo", f"{exit_dual_level.__module__}.exit_dual_level"}
    assert found["user.function"] == "1"
    assert found == marks(gm, [state(), "a fact"], {"user.function": "1"})
    assert found != marks(gm, [state(), "another"], {"user.function": "1"})
    with torch.no_grad():
        assert found != marks(gm, [state(), "a fact"], {"user.function": "1"})


def test_a_table_is_pickled_as_its_digest() -> None:
    assert pickle.loads(pickle.dumps(Decompositions({torch.ops.aten.sin.default: of_users}))) == {}


def test_any_source_is_in_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def digest() -> str:
        return cache_key.digest_of_sources.__wrapped__()

    (tmp_path / "backends").mkdir()
    source = tmp_path / "graph.py"
    source.write_text("a = 1\n")
    monkeypatch.setattr(cache_key, "__file__", str(tmp_path / "backends" / "cache_key.py"))
    before = digest()
    assert digest() == before
    source.write_text("a = 2\n")
    changed = digest()
    source.rename(tmp_path / "backends" / "graph.py")
    assert len({before, changed, digest()}) == 3


@pytest.mark.parametrize(
    ("mode", "trusted"), [(None, True), (0o700, True), (0o755, True), (0o775, False), (0o777, False)]
)
def test_only_a_folder_of_ones_own_is_trusted(tmp_path: Path, mode: int | None, trusted: bool) -> None:
    folder = tmp_path / "torchinductor_me"
    if mode is not None:
        folder.mkdir()
        folder.chmod(mode)
    told = pytest.warns(TorchDynamoWarning, match="others may write") if not trusted else contextlib.nullcontext()
    with told:
        assert disk_caches.is_private(str(folder)) is trusted
    assert mode is not None or folder.stat().st_mode & 0o777 == 0o700


def test_a_link_to_a_folder_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.warns(TorchDynamoWarning, match="others may write"):
        assert not disk_caches.is_private(str(tmp_path / "link"))

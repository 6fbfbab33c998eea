"""What was measured is found by another process, and whatever is wrong with the file costs nothing but a warning."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from backends.ensemble.competing import compiled, member, slow, states, work

import torchdynamo
from torchdynamo.backends.ensemble import choices, chosen, database, identity
from torchdynamo.backends.ensemble.database import Database, Row
from torchdynamo.backends.ensemble.identity import fingerprint, graph_hash, versions
from torchdynamo.backends.ensemble.measure import Timing
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.errors import TorchDynamoWarning

Compete = Callable[..., None]
X = torch.randn(4, 4)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    found = tmp_path / "folder" / "ensemble.sqlite3"
    monkeypatch.setenv(database.VARIABLE, str(found))
    yield found
    database._known.pop(found, None)


def as_another_process(file: Path) -> None:
    """Forget what this process knows of the file and has compiled."""
    database._known.pop(file, None)
    torchdynamo.reset()
    choices.clear()


def rows(**medians: float) -> list[Row]:
    return [Row(name, "built", timing=Timing(each, each * 0.9, each * 1.1, 9)) for name, each in medians.items()]


def hash_of(fn: Callable[..., Any], *args: Any, **settings: Any) -> str | None:
    found: list[str | None] = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        found.append(graph_hash(Subgraph(gm, inputs, **settings)))
        return gm.forward

    torchdynamo.reset()
    torchdynamo.compile(fn, backend=backend)(*args)
    return found[0]


def test_second_process_builds_the_winner_only(compete: Compete, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compete(member("quick", lambda run: run), member("slug", slow(0.0001)))
    monkeypatch.setattr(database, "winner_of", lambda rows: "quick" if rows else None)
    compiled(work, tune="now")(X)
    assert states() == {"quick": "built", "slug": "built"} and file.exists()
    as_another_process(file)
    fn = compiled(work)
    assert torch.equal(fn(X), work(X))
    assert states() == {"quick": "built", "slug": "unknown"} and chosen() == ["quick"]


def test_winner_that_lies_now_is_rejected(compete: Compete, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compete(member("quick", lambda run: run))
    monkeypatch.setattr(database, "winner_of", lambda rows: "quick" if rows else None)
    compiled(work, tune="now")(X)
    as_another_process(file)
    compete(member("quick", lambda run: lambda x: (run(x)[0] + 1,)))
    assert torch.equal(compiled(work)(X), work(X)) and states() == {"quick": "rejected"}


def test_eager_that_won_builds_nobody(compete: Compete, file: Path) -> None:
    compete(member("slug", slow(0.002)))
    compiled(work, tune="now")(X)
    as_another_process(file)
    compiled(work, tune="now")(X)
    assert states() == {"slug": "unknown"} and chosen() == ["eager"]


def test_named_members_are_not_recalled(compete: Compete, file: Path) -> None:
    compete(member("slug", slow(0.002)))
    for _ in range(2):
        compiled(work, tune="now", members=["slug"])(X)
        assert states() == {"slug": "built"}
        as_another_process(file)


def test_rows_come_back_as_they_were(file: Path) -> None:
    kept = [*rows(eager=1.0, a=0.5), Row("b", "rejected", "it lies", 2.0, None, 0.1, 5)]
    Database(file).keep("g", kept)
    found = Database(file)
    assert found.rows("g") == kept and found.winner("g") == "a" and found.winner("h") is None


@pytest.mark.parametrize("graph", ["g", f"{identity.OF_INDUCTOR}g"])
@pytest.mark.parametrize("what", ["fingerprint", "versions_for"])
def test_other_machines_and_versions_are_not_believed(
    what: str, graph: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Database(file).keep(graph, rows(eager=1.0, a=0.5))
    assert Database(file).winner(graph) == "a"
    monkeypatch.setattr(database, what, lambda *_: "another")
    assert Database(file).winner(graph) is None


def test_optional_packages_belong_to_what_is_measured_of_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of Inductor's options rest on none of them, and are found without looking for them."""
    monkeypatch.setattr(identity, "versions", lambda: "with packages")
    assert identity.versions_for("g") == "with packages"
    assert identity.versions_for(f"{identity.OF_INDUCTOR}g") == identity.own_versions()


def test_winner_needs_eagers_time(file: Path) -> None:
    Database(file).keep("g", rows(a=0.5))
    assert Database(file).winner("g") is None


@pytest.mark.parametrize("damage", ["garbage", "truncated"])
def test_broken_file_is_moved_aside(damage: str, file: Path, compete: Compete) -> None:
    Database(file).keep("g", rows(eager=1.0, a=0.5))
    content = file.read_bytes()
    file.write_bytes(b"no database " * 400 if damage == "garbage" else content[: len(content) // 2])
    for each in file.parent.glob("*-wal"):
        each.unlink()
    broken = Database(file)
    with pytest.warns(TorchDynamoWarning, match="broken"):
        broken.rows("g")
    assert broken.rows("g") == [] and file.with_name(file.name + ".broken").exists()
    Database(file).keep("g", rows(eager=1.0, a=0.5))
    assert Database(file).winner("g") == "a"


def test_folder_that_cannot_be_made_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = Database(tmp_path / "file" / "ensemble.sqlite3")
    with pytest.warns(TorchDynamoWarning, match="nothing is read"):
        found.keep("g", rows(eager=1.0))
    assert found.winner("g") is None


def test_file_of_another_user_is_not_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Database(file).keep("g", rows(eager=1.0, a=0.5))
    os.chown(file, 1234, -1) if os.getuid() == 0 else monkeypatch.setattr(os, "getuid", lambda: 4321)
    with pytest.warns(TorchDynamoWarning, match="another user"):
        assert Database(file).winner("g") is None


def test_locked_file_is_not_waited_for_long(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Database(file).keep("g", rows(eager=1.0, a=0.5))
    monkeypatch.setattr(database, "PATIENCE", 0.1)
    holder = sqlite3.connect(file)
    holder.execute("begin exclusive")
    try:
        with pytest.warns(TorchDynamoWarning, match="locked"):
            Database(file).keep("g", rows(eager=1.0))
    finally:
        holder.close()


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(database.VARIABLE, "")
    assert database.path() is None and database.database() is None
    monkeypatch.delenv(database.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert database.path() == Path("/somewhere/torchdynamo/ensemble.sqlite3")


PROGRAM = """
import torch, torchdynamo
from torchdynamo.backends.ensemble.identity import graph_hash
from torchdynamo.backends.ensemble.subgraph import Subgraph

def fn(x, y):
    z = torch.nn.functional.gelu(x @ y, approximate="tanh").to(torch.float64)
    return {"a": z.sum(0), "b": (z[..., 1:3], torch.cat([x, y], 1))}

def backend(gm, inputs):
    print(graph_hash(Subgraph(gm, inputs)))
    return gm.forward

torchdynamo.compile(fn, backend=backend)(torch.randn(4, 4), torch.randn(4, 4))
"""


@pytest.mark.long
def test_hash_is_the_same_in_other_processes() -> None:
    found = [
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PROGRAM)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1] and len(found[0].strip()) == 32


def test_hash_tells_graphs_apart() -> None:
    def scaled(factor: float) -> Callable[..., Any]:
        return lambda x: torch.tanh(x) * factor

    with torch.no_grad():
        quiet = hash_of(scaled(2.0), X)
    found = [
        quiet,
        hash_of(scaled(2.0), X),
        hash_of(scaled(3.0), X),
        hash_of(scaled(2.0), X.double()),
        hash_of(scaled(2.0), torch.randn(4, 5)),
        hash_of(scaled(2.0), X.t()),
        hash_of(scaled(2.0), X, constants=True),
        hash_of(lambda x: torch.tanh(x) + 2.0, X),
        hash_of(lambda x: (torch.tanh(x) * 2.0, 1), X.clone().requires_grad_()),
    ]
    assert None not in found and len(set(found)) == len(found)
    assert hash_of(scaled(2.0), torch.ones(4, 4)) == found[1]


def test_identities_are_told() -> None:
    assert f"{torch.get_num_threads()} threads" in fingerprint() and f"torch {torch.__version__}" in versions()


def test_no_warning_in_ordinary_use(file: Path, compete: Compete) -> None:
    compete(member("one", lambda run: run))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(work, tune="now")(X)

"""`python -m torchdynamo cache`, and what keeps the store small."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import torchdynamo
from torchdynamo import events
from torchdynamo.cache.store import eviction, files, places
from torchdynamo.cli.cache import main, seconds_of, size_of


def program(x: torch.Tensor) -> torch.Tensor:
    return x.relu() + 1


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store with one entry, in use."""
    folder = tmp_path / "store"
    monkeypatch.setenv("TORCHDYNAMO_CACHE", "1")
    monkeypatch.setenv("TORCHDYNAMO_CACHE_DIR", str(folder))
    places.complain.cache_clear()
    torchdynamo.compile(program, backend="eager")(torch.ones(3))
    yield folder
    places.complain.cache_clear()


def test_entries_are_listed_and_shown(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = store.rglob("*.td")
    assert main(["ls"]) == 0
    line, total = capsys.readouterr().out.splitlines()
    assert line.startswith(path.stem[:12])
    assert f"program {__file__}:{program.__code__.co_firstlineno}" in line and "2 operators" in line
    assert total.startswith("1 entries")
    assert main(["ls", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["function"], row["backend"]) == ("program", "eager")
    assert main(["show", path.stem[:6]]) == 0
    assert "guards" in capsys.readouterr().out
    assert main(["show", "nothing"]) == 1
    assert main(["path"]) == 0
    assert capsys.readouterr().out.strip() == str(store)


def test_damage_is_found(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify"]) == 0
    (path,) = store.rglob("*.td")
    path.write_bytes(path.read_bytes()[:-1])
    assert main(["verify"]) == 1
    assert path.name in capsys.readouterr().out
    assert main(["ls"]) == 0
    assert "Damaged" in capsys.readouterr().out


def test_the_store_is_cleared_and_copied(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["bake", str(tmp_path / "image")]) == 0
    assert main(["clear"]) == 0
    assert list(store.rglob("*.td")) == []
    monkeypatch.setenv("TORCHDYNAMO_CACHE_TRUST", str(tmp_path / "image"))
    torchdynamo.reset()
    torchdynamo.compile(program, backend="eager")(torch.ones(3))
    assert [event.stored for event in events.recent() if event.kind == "compile"] == ["hit"]


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    folder = places.made_private(places.frames_in(tmp_path, "key"))
    for at in range(10):
        files.write(folder / f"{at}.td", b"x" * 100)
        os.utime(folder / f"{at}.td", (1000 + at, 1000 + at))
    assert [path.name for path in eviction.prune(tmp_path, 700)] == ["0.td", "1.td", "2.td"]
    eviction.make_room(folder)
    assert sorted(path.name for path in folder.iterdir()) == [f"{at}.td" for at in range(3, 10)]
    eviction.prune(tmp_path, 700, older=1.0)
    assert list(folder.iterdir()) == []


def test_sizes_and_ages() -> None:
    assert (size_of("1G"), size_of("500m"), size_of("7")) == (1 << 30, 500 << 20, 7)
    assert (seconds_of("30d"), seconds_of("2h")) == (30 * 86400, 7200)

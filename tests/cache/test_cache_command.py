"""`python -m torchdynamo cache`, and what keeps the store small."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import torchdynamo
from torchdynamo import events, storing, warm_start
from torchdynamo.cache.store import eviction, files, keys, places
from torchdynamo.cli.cache import main, seconds_of, size_of


def program(x: torch.Tensor) -> torch.Tensor:
    return x.relu() + 1


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store with one entry, in use."""
    folder = tmp_path / "store"
    monkeypatch.setenv("TORCHDYNAMO_CACHE", "1")
    monkeypatch.setenv("TORCHDYNAMO_CACHE_DIR", str(folder))
    monkeypatch.setattr(sys, "path", [*sys.path])  # commands add the folder they are called in
    warm_start._complained.clear()
    torchdynamo.compile(program, backend="eager")(torch.ones(3))
    yield folder
    warm_start._complained.clear()


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


def test_why_says_what_has_changed(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a process in which the function, a setting or the environment is another."""
    assert main(["why", f"{__name__}:program"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    (path,) = store.rglob("*.td")
    assert head.startswith(path.stem[:12]) and "eager" in head and str(path) in head
    assert line == "    nothing differs that is known before a call: its guards decide"
    with torchdynamo.config.patch(capture_scalar_outputs=True):
        assert main(["why", f"{__name__}:program"]) == 0
    assert "    config.capture_scalar_outputs: was False, is True" in capsys.readouterr().out
    others = {"torch": "another", "processor": "other instructions"}
    facts = {**keys.facts_of_environment(), **others}
    monkeypatch.setattr(keys, "facts_of_environment", lambda: facts)
    monkeypatch.setattr(program, "__code__", program.__code__.replace(co_consts=(None, 2)))
    assert main(["why", f"{__name__}:program"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert lines[:2] == ["    the function's code: changed", "    the processor's instructions: changed"]
    assert len(lines) == 3 and lines[2].endswith("is another")


def test_why_needs_a_function_with_entries(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", f"{__name__}:main"]) == 1
    assert "no entry" in capsys.readouterr().out
    assert main(["why", f"{__name__}:nothing"]) == 2
    assert "AttributeError" in capsys.readouterr().err


def test_why_says_what_was_not_stored_and_what_did_not_fit(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def why() -> list[str]:
        capsys.readouterr()
        main(["why", f"{__name__}:breaks"])
        return capsys.readouterr().out.splitlines()

    marked = torch.ones(3)
    torchdynamo.mark_dynamic(marked, 0)
    torchdynamo.compile(breaks, backend="eager")(marked)
    head, reason = why()
    assert head.startswith("there is no entry") and "explain" not in head
    assert reason.startswith("0.0d ago, from line ") and "not stored: a tensor is marked" in reason
    torchdynamo.compile(breaks, backend="eager", dynamic=False)(torch.ones(3))
    torchdynamo.reset()
    torchdynamo.compile(breaks, backend="eager", dynamic=False)(torch.ones(4))
    assert any("a stored version does not fit: " in line for line in why())
    (folder,) = {path.parent for path in store.rglob("*.json")}
    assert main(["bake", str(store.parent / "image")]) == 0
    assert folder.name == "notes" and not list((store.parent / "image").rglob("notes"))


def left(x: torch.Tensor) -> torch.Tensor:
    exec("y = 1")
    return x + 1


def test_why_says_what_is_left_to_python(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torchdynamo.compile(left, backend="eager")(torch.ones(3))
    main(["why", f"{__name__}:left"])
    assert "left to Python, which is not stored: exec has side effects" in capsys.readouterr().out


def trained(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sin()


def test_why_says_that_a_backward_is_to_come(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = torchdynamo.compile(trained, backend="aot_eager")(torch.ones(3, requires_grad=True))
    main(["why", f"{__name__}:trained"])
    assert "to be stored later" in capsys.readouterr().out
    result.sum().backward()
    main(["why", f"{__name__}:trained"])
    assert "to be stored later" not in capsys.readouterr().out
    assert main(["why", f"{__name__}:trained"]) == 0


def breaks(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    if y.sum() > 0:
        y = y + 1
    return y.cos()


def test_explain_says_what_the_store_has(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = torchdynamo.explain(program)(torch.ones(3))
    assert found.stored == ["graph 0: in the store"]
    assert "graph 0: in the store" in str(found)
    assert torchdynamo.explain(program)(torch.ones(3, dtype=torch.float64)).stored == [
        "graph 0: not in the store; to be stored when it is compiled"
    ]
    marked = torch.ones(3)
    torchdynamo.mark_dynamic(marked, 0)
    (line,) = torchdynamo.explain(program)(marked).stored
    assert line.startswith("graph 0: not stored: a tensor is marked")
    assert len(list(store.rglob("*.td"))) == 1
    monkeypatch.setenv("TORCHDYNAMO_CACHE", "0")
    assert torchdynamo.explain(program)(torch.ones(3)).stored == []


def test_explain_says_what_is_not_stored_of_frames_without_a_graph(store: Path) -> None:
    def left(x: torch.Tensor) -> torch.Tensor:
        exec("y = 1")
        return x + 1

    assert torchdynamo.explain(left)(torch.ones(3)).stored == ["left: not stored: it is left to Python"]
    found = torchdynamo.explain(breaks)(torch.ones(3)).stored
    assert found[0] == "graph 0: not in the store; to be stored when it is compiled"
    assert len(found) == 2


def test_an_error_of_ours_leaves_explain_its_result(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object) -> object:
        raise KeyError("fault")

    monkeypatch.setattr(storing, "written_sections", fails)
    found = torchdynamo.explain(program)(torch.ones(3))
    assert found.graph_count == 1
    assert found.stored == ["graph 0: not stored, by a fault of torchdynamo (KeyError: 'fault')"]


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

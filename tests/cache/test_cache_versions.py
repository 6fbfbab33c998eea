"""Several entries of a function, sizes that vary, marked tensors, and errors: as with entries of the process."""

from __future__ import annotations

import gc
import itertools
import logging
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo import events, pipeline
from torchdynamo.cache.store import frames

pytestmark = pytest.mark.usefixtures("store")


def calls(fn: Callable[..., Any], *arguments: tuple[Any, ...]) -> tuple[int, int]:
    """Call a function with each of these arguments as if in a new process; return how many hits and compiles."""
    torchdynamo.reset()
    compiled = torchdynamo.compile(fn, backend="eager")
    for given in arguments:
        assert torch.equal(compiled(*given), fn(*given))
    seen = [event.stored for event in events.recent() if event.kind == "compile"]
    return seen.count("hit"), seen.count("")


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1) * x.shape[0]


def size(*sizes: int) -> tuple[torch.Tensor]:
    return (torch.ones(*sizes),)


def test_a_version_for_all_sizes_serves_sizes_that_nobody_has_seen() -> None:
    assert calls(scaled, size(3), size(4), size(5)) == (0, 2)
    assert calls(scaled, size(7), size(8)) == (1, 0)


def test_versions_are_found_in_another_order() -> None:
    assert calls(scaled, size(3), (torch.ones(3, dtype=torch.int64),)) == (0, 2)
    assert calls(scaled, (torch.ones(3, dtype=torch.int64),), size(3)) == (2, 0)


def test_what_changes_after_loading_is_compiled_and_kept_beside_it(store: Path) -> None:
    assert calls(scaled, size(3)) == (0, 1)
    assert calls(scaled, size(3), size(3, 2)) == (1, 1)
    assert len(list(store.rglob("*.td"))) == 2
    assert calls(scaled, size(3), size(3, 2)) == (2, 0)


def test_grad_mode_and_training_have_entries_of_their_own() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.0))

    def both() -> int:
        torchdynamo.reset()
        compiled = torchdynamo.compile(model, backend="eager")
        x = torch.ones(3)
        for training in (True, False):
            model.train(training)
            assert torch.equal(compiled(x), model(x))
            with torch.no_grad():
                got = compiled(x)
            assert not got.requires_grad
        return sum(event.stored == "hit" for event in events.recent())

    assert both() == 0
    assert both() == 4


def tiny(x: torch.Tensor) -> torch.Tensor:
    return x * int(torch.tensor(1e-40).item() > 0)


def test_what_becomes_of_the_smallest_numbers_is_in_the_key() -> None:
    assert calls(tiny, size(3)) == (0, 1)
    assert torch.set_flush_denormal(True)
    try:
        assert calls(tiny, size(3)) == (0, 1)
    finally:
        torch.set_flush_denormal(False)
    assert calls(tiny, size(3)) == (1, 0)


def test_a_promise_about_sizes_is_checked_by_a_capture() -> None:
    assert calls(scaled, size(3)) == (0, 1)
    x = torch.ones(3)
    torchdynamo.mark_dynamic(x, 0)
    assert calls(scaled, (x,)) == (0, 1)


def failing(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    return y[7] * 2


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print(end="")
    return y.relu()


def indexed(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    y = x[at] + 1
    print(end="")
    return y.relu()


def test_an_error_of_the_program_is_eagers() -> None:
    good, bad = torch.tensor([0, 1]), torch.tensor([0, 9])
    x = torch.ones(3)
    assert calls(indexed, (x, good))[1] >= 2
    torchdynamo.reset()
    compiled = torchdynamo.compile(indexed, backend="eager")
    assert torch.equal(compiled(x, good), indexed(x, good))
    assert any(event.stored == "hit" for event in events.recent())
    with pytest.raises(IndexError) as wanted:
        indexed(x, bad)
    with pytest.raises(IndexError) as found:
        compiled(x, bad)
    assert str(found.value) == str(wanted.value)
    names = [frame.name for frame in traceback.extract_tb(found.value.__traceback__)]
    assert "indexed" in names
    assert not any("torchdynamo" in frame.filename for frame in traceback.extract_tb(found.value.__traceback__)[:-1])


def test_a_continuation_is_found_without_its_root_and_the_reverse(store: Path) -> None:
    assert calls(broken, size(3)) == (0, 2)
    first, second = sorted(store.rglob("*.td"))
    for path in (first, second):
        content = path.read_bytes()
        path.unlink()
        assert calls(broken, size(3)) == (1, 1)
        path.write_bytes(content)


def test_the_report_of_a_call_is_of_a_capture() -> None:
    assert calls(scaled, size(3)) == (0, 1)
    assert torchdynamo.explain(scaled)(torch.ones(3)).graph_count == 1


def test_an_entry_that_was_loaded_holds_nothing_of_the_call() -> None:
    assert calls(indexed, (torch.ones(3), torch.tensor([0])))[1] >= 2
    torchdynamo.reset()
    compiled = torchdynamo.compile(indexed, backend="eager")
    x = torch.ones(3)
    compiled(x, torch.tensor([0]))
    assert any(event.stored == "hit" for event in events.recent())
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def shown_version(version: Any) -> dict[str, Any]:
    """What a report says of a version, but for when, how long it took, and what was seen meanwhile."""
    return {name: version[name] for name in ("number", "operators", "backend") if name in version}


def with_a_break(x: torch.Tensor, n: int) -> torch.Tensor:
    y = x + n
    torchdynamo.graph_break()
    return y * 2


def test_reports_logs_and_records_are_as_of_a_capture(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A loaded version is shown with its graph, its break and why it was needed; graphs to record are captured."""
    seen = []
    for loaded in (False, True):
        torchdynamo.reset()
        caplog.clear()
        compiled = torchdynamo.compile(with_a_break, backend="eager", dynamic=False)
        with caplog.at_level(logging.DEBUG, "torchdynamo"):
            for n in (2, 3):
                assert torch.equal(compiled(torch.ones(2), n), with_a_break(torch.ones(2), n))
        told = [event for event in events.recent() if event.kind != "cache"]
        assert [event.stored for event in told if event.kind == "compile"] == ["hit" if loaded else ""] * 3
        report = torchdynamo.report()
        functions = [(each["function"], list(map(shown_version, each["versions"]))) for each in report["functions"]]
        topics = [record.name for record in caplog.records if "bytecode" not in record.name]
        seen.append(([(each.kind, each.place, each.reason, each.graph[-2:]) for each in told], functions, topics))
    assert seen[0][0] == seen[1][0]
    assert seen[0][1:] == seen[1][1:]
    torchdynamo.reset()
    with torchdynamo.record(tmp_path / "recorded"):
        torchdynamo.compile(with_a_break, backend="eager", dynamic=False)(torch.ones(2), 2)
    assert len(list((tmp_path / "recorded").iterdir())) == 2


class Table(torch.nn.Module):
    """Sets itself up for each size."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[int, torch.Tensor] = {}

    def forward(self, x: torch.Tensor, seen: list[int]) -> torch.Tensor:
        seen.append(len(x))
        if len(x) not in self.tables:
            self.tables[len(x)] = torch.arange(len(x)) + x[0]
        return x * self.tables[len(x)]


def called(model: torch.nn.Module, calls: int) -> list[Any]:
    found, seen = [], []
    for call in range(calls):
        given: list[int] = []
        found.append(model(torch.ones(3) * (call + 1), given).tolist())
        seen.append(given)
    return [found, seen]


def test_a_call_that_sets_something_up_is_found_with_what_comes_after(monkeypatch: pytest.MonkeyPatch) -> None:
    assert called(torchdynamo.compile(Table(), backend="eager"), 1) == called(Table(), 1)
    torchdynamo.reset()
    monkeypatch.setattr(pipeline, "follow", lambda *args: pytest.fail("something is captured"))
    model = torchdynamo.compile(Table(), backend="eager")
    assert called(model, 3) == called(Table(), 3)
    assert [event.stored for event in events.recent() if event.kind == "compile"] == ["hit"]


def test_a_call_that_sets_something_up_runs_as_captured_under_any_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    assert called(torchdynamo.compile(Table(), backend="aot_eager"), 2) == called(Table(), 2)
    torchdynamo.reset()
    monkeypatch.setattr(pipeline, "follow", lambda *args: pytest.fail("something is captured"))
    assert called(torchdynamo.compile(Table(), backend="aot_eager"), 2) == called(Table(), 2)


def test_set_up_without_end_is_compiled_as_it_is_found() -> None:
    for _ in range(3):
        torchdynamo.reset()
        compiled = torchdynamo.compile(lambda model, x, seen: model(x, seen), backend="eager")
        for _ in range(7):
            model, given = Table(), []
            assert compiled(model, torch.ones(3), given).tolist() == [1, 2, 3]
            assert given == [3] and model.tables[3].tolist() == [1, 2, 3]


SHARING = next(pair for pair in itertools.combinations("abcdefghij", 2) if len({hash(each) & 7 for each in pair}) == 1)
"""Two names that have the same place in the table of a set."""


@pytest.mark.parametrize("names", [SHARING, SHARING[::-1]], ids=["one way", "the other way"])
def test_order_of_a_set_counts_whose_names_share_a_place(
    names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        for each in set(names):
            x = x * 2 + ord(each)
        return x

    assert calls(fn, size(3)) == (0, 1)
    assert [event.text for event in events.recent() if event.kind == "cache"] == []
    assert calls(fn, size(3)) == (1, 0)
    monkeypatch.setattr(frames, "is_order_of_hashes", lambda given, keys: False)
    assert calls(fn, size(3))[0] == 0

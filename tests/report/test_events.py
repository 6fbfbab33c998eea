"""Events: what is recorded, that the record is bounded and holds nothing of the program, and how it is logged."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import torchdynamo
from torchdynamo import _native, events
from torchdynamo.core.reasons import pointer
from torchdynamo.events import Place
from torchdynamo.report import logs
from torchdynamo.report.timing import timed_graphs

HERE = Place(__file__, 1, "here")


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    torchdynamo.reset()
    yield
    torchdynamo.set_logs("")


def branching(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    if y.sum() > 0:
        return y + 1
    return y - 1


def kinds() -> list[str]:
    return [event.kind for event in events.recent()]


def test_a_break_has_its_line_reason_and_remedy() -> None:
    torchdynamo.compile(branching, backend="eager")(torch.ones(3))
    assert kinds() == ["compile", "break", "compile"]
    compiled, found, _ = events.recent()
    line = branching.__code__.co_firstlineno + 2
    assert (found.place.filename, found.place.line, found.place.function) == (__file__, line, "branching")
    assert found.reason == "data-dependent branch"
    assert "torch.where" in found.hint
    assert found.parent == compiled.number
    assert compiled.operators == 3
    assert set(compiled.seconds) == {"capture", "graph", "backend", "code", "guards"}
    assert compiled.chain[0].filename == __file__


def test_a_recompile_has_the_old_and_the_new_value() -> None:
    compiled = torchdynamo.compile(lambda x, n: x * len(n), backend="eager")
    compiled(torch.ones(3), "ab")
    compiled(torch.ones(3), "abc")
    (found,) = (event for event in events.recent() if event.kind == "recompile")
    assert (found.source, found.old, found.new) == ("n", "'ab'", "'abc'")


def test_a_failing_backend_is_a_fallback_at_the_line_that_calls() -> None:
    def failing(gm: Any, examples: Any) -> Any:
        raise ValueError("no")

    with pytest.warns(torchdynamo.exc.FallbackWarning):
        torchdynamo.compile(lambda x: x + 1, backend=failing)(torch.ones(3))
    (found,) = (event for event in events.recent() if event.kind == "fallback")
    assert found.place.filename == __file__
    assert found.place.function == "test_a_failing_backend_is_a_fallback_at_the_line_that_calls"


def test_a_hit_records_nothing() -> None:
    compiled = torchdynamo.compile(branching, backend="eager")
    compiled(torch.ones(3))
    before = len(events.recent())
    for _ in range(100):
        compiled(torch.ones(3))
    assert len(events.recent()) == before


def test_the_record_is_bounded_and_texts_are_cut() -> None:
    for _ in range(events.KEPT + 10):
        found = events.record("skip", HERE, "x" * 10_000)
    assert len(events.recent()) == events.KEPT
    assert len(found.text) == events.LONGEST
    assert events.count(found) == events.KEPT + 10


def test_events_keep_no_model_alive() -> None:
    model = torch.nn.Linear(2, 2)
    torchdynamo.compile(model, backend="eager")(torch.ones(1, 2))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert "compile" in kinds()
    assert gone() is None


def test_a_forked_process_begins_with_no_events() -> None:
    events.record("skip", HERE)
    if (child := os.fork()) == 0:
        os._exit(len(events.recent()))
    assert os.waitpid(child, 0)[1] == 0


def test_phases_do_not_count_each_other() -> None:
    with events.timing() as seconds, events.phase("outer"):
        with events.timing() as inner, events.phase("other"):
            pass
        with events.phase("inner"):
            pass
    assert set(seconds) == {"outer", "inner"}
    assert set(inner) == {"other"}


def test_a_break_is_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    compiled = torchdynamo.compile(branching, backend="eager")
    with caplog.at_level(logging.INFO, "torchdynamo.breaks"):
        for size in range(2, 12):
            compiled(torch.ones(size))
        torchdynamo.compile(branching, backend="eager", dynamic=False)(torch.ones(3))
    (record,) = caplog.records
    assert record.name == "torchdynamo.breaks"
    assert record.getMessage().splitlines()[-1].strip() == pointer(record.event.reason)  # type: ignore[attr-defined]
    assert f"{__file__}:{branching.__code__.co_firstlineno + 2} in branching" in record.getMessage()
    assert "if y.sum() > 0:" in record.getMessage()
    assert events.count(record.event) >= 2  # type: ignore[attr-defined]


def test_a_handler_that_raises_is_reported_and_the_call_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError(torch.ones(2).sin())

    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    logger, handler = logging.getLogger("torchdynamo.breaks"), Raising()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        result = torchdynamo.compile(branching, backend="eager")(torch.ones(3))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert torch.equal(result, branching(torch.ones(3)))
    assert [each.err_msg for each in reported] == ["a log handler raised"]


PROGRAM = """
import torch, torchdynamo
@torchdynamo.compile(backend="eager")
def f(x):
    print("here")
    return x + 1
f(torch.ones(3))
"""


def run_with(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, **variables}
    command = [sys.executable, str(tmp_path / "program.py")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_the_variable_shows_topics(tmp_path: Path) -> None:
    shown = run_with(tmp_path, TORCHDYNAMO_LOGS="breaks,-compiles").stderr
    assert "[torchdynamo.breaks]" in shown
    assert "program.py:5 in f" in shown
    assert "[torchdynamo.compiles]" not in shown


def test_an_unknown_topic_stops_the_import_with_a_list(tmp_path: Path) -> None:
    found = run_with(tmp_path, TORCHDYNAMO_LOGS="braeks")
    assert found.returncode == 1
    assert "no topic 'braeks' for TORCHDYNAMO_LOGS; did you mean 'breaks'?" in found.stderr


def test_names_of_torchs_variable_count_as_ours() -> None:
    assert logs.from_environment({"TORCH_LOGS": "graph_breaks,+dynamo,aot"}) == "compiles,breaks"
    assert logs.from_environment({"TORCH_LOGS": "guards", "TORCHDYNAMO_LOGS": "limits"}) == "guards,limits"


@pytest.mark.parametrize("topic", ["graphs", "guards", "bytecode", "compiles"])
def test_topics_in_detail(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    torchdynamo.set_logs(f"+{topic}")
    torchdynamo.compile(branching, backend="eager")(torch.ones(3))
    assert f"[torchdynamo.{topic}]" in capsys.readouterr().err


def test_graphs_are_timed_while_somebody_asks() -> None:
    compiled = torchdynamo.compile(branching, backend="eager")
    compiled(torch.ones(3))
    with timed_graphs() as calls:
        compiled(torch.ones(3))
    compiled(torch.ones(3))
    assert [call.graph.split()[0] for call in calls] == ["branching", "branching"]
    assert all(call.started <= call.ended for call in calls)
    assert _native.watch_graphs(None) is None


def test_a_watcher_that_raises_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: reported.append(each.exc_type))
    compiled = torchdynamo.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(3))
    _native.watch_graphs(lambda label, started, ended: 1 / 0)
    try:
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    finally:
        _native.watch_graphs(None)
    assert reported == [ZeroDivisionError]


def test_a_profiler_sees_graphs_by_name() -> None:
    compiled = torchdynamo.compile(branching, backend="eager")
    compiled(torch.ones(3))
    with torch.profiler.profile() as profiler:
        compiled(torch.ones(3))
    named = [each.key for each in profiler.key_averages() if each.key.startswith("torchdynamo: branching graph ")]
    assert len(named) == 2


def test_a_profiler_sees_the_compiler_by_phase() -> None:
    def doubled(x):
        return x * 2

    compiled = torchdynamo.compile(doubled, backend="eager")
    ranges = []
    for dtype in (torch.float32, torch.float64, torch.float64):
        with torch.profiler.profile() as profiler:
            compiled(torch.ones(3, dtype=dtype))
        named = [each.key for each in profiler.key_averages() if each.key.startswith("torchdynamo: doubled ")]
        ranges.append({key.removeprefix("torchdynamo: doubled ") for key in named if "graph " not in key})
    phases = {"capture", "graph", "backend", "code", "guards"}
    assert ranges == [{"compile", *phases}, {"guards missed", *phases}, set()]


SLOW = """
import sys, time, torch, torchdynamo
def slow(gm, examples):
    time.sleep(3)
    return gm.forward
torchdynamo.compile(lambda x: x + 1, backend=slow)(torch.ones(3))
"""


def test_a_long_compilation_is_shown_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    ours, theirs = os.openpty()
    command = [sys.executable, str(tmp_path / "slow.py")]
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL, env=environment)
    os.close(theirs)
    written = b""
    with contextlib.suppress(OSError):  # the terminal's other end is closed
        while more := os.read(ours, 4096):
            written += more
    os.close(ours)
    assert process.wait(60) == 0
    assert b"torchdynamo: <lambda> (slow.py:6): backend, " in written


def test_nothing_is_shown_where_there_is_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    done = subprocess.run([sys.executable, str(tmp_path / "slow.py")], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

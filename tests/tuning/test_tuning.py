"""Tuning recorded graphs: a member that crashes, hangs or eats memory costs one row, and programs find the winner."""

from __future__ import annotations

import csv
import importlib.util
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchdynamo
from torchdynamo.__main__ import main
from torchdynamo.backends.ensemble import chosen, database, processes
from torchdynamo.backends.ensemble.database import Row
from torchdynamo.backends.ensemble.measure import Timing
from torchdynamo.backends.ensemble.requests import TrialAnswer, TrialRequest
from torchdynamo.tuning import command, pools
from torchdynamo.tuning.command import speedup_rows, summary

MEMBERS = """
import os, time
from torchdynamo.backends.ensemble.member import MEMBERS, Member, register_member

def crash(subgraph): os.abort()
def hang(subgraph): time.sleep(1000)
def eat(subgraph):
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20)) * 64)
        time.sleep(0.01)
def lie(subgraph): return lambda *args: tuple(each + 1 for each in subgraph.gm.forward(*args))
def work(subgraph): return subgraph.gm.forward

for rank, build in enumerate((crash, hang, eat, lie, work), 100):
    if build.__name__ not in MEMBERS:
        register_member(Member(build.__name__, build, rank=rank))
"""


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ x) * 2


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A folder with one recorded graph."""
    folder = tmp_path / "graphs"
    with torchdynamo.record(folder), torch.no_grad():
        torchdynamo.compile(program, backend="eager")(torch.randn(8, 8))
    return folder


@pytest.fixture
def members(tmp_path: Path) -> str:
    path = tmp_path / "own_members.py"
    path.write_text(MEMBERS)
    return str(path)


def request(recorded: Path, members: str, name: str) -> TrialRequest:
    (folder,) = recorded.iterdir()
    return TrialRequest(str(folder), [name], False, [members], 1.0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "limits", "state", "reason"),
    [
        ("crash", (100, 0), "crashed", "SIGABRT"),
        ("hang", (6, 0), "timeout", "6 s"),
        ("eat", (100, 1500), "memory", "the limit is 1500"),
        ("lie", (100, 0), "rejected", "float64"),
        ("nobody", (100, 0), "crashed", "KeyError"),
    ],
)
def test_bad_member_costs_one_row(
    name: str, limits: tuple[float, float], state: str, reason: str, recorded: Path, members: str
) -> None:
    (row,) = processes.run(pools.TRIAL, request(recorded, members, name), *limits).rows
    assert (row.member, row.state) == (name, state) and reason in row.reason


@pytest.mark.long
def test_program_uses_what_was_tuned(
    recorded: Path, members: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "ensemble.sqlite3", tmp_path / "speedups.csv"
    monkeypatch.setenv(database.VARIABLE, str(file))
    arguments = ["--members", "ts,lie", "--import", members, "--jobs", "2", "--seconds", "1", "--out", str(out)]
    assert main(["tune", str(recorded), *arguments]) == 0
    with out.open() as lines:
        rows = {row["member"]: row for row in csv.DictReader(lines)}
    assert set(rows) == {"eager", "ts", "lie"} and rows["lie"]["state"] == "rejected"
    assert float(rows["eager"]["median_ms"]) > 0 and float(rows["ts"]["speedup"]) > 0
    assert sum(row["winner"] == "True" for row in rows.values()) == 1
    assert "geometric mean" in capsys.readouterr().out
    with sqlite3.connect(file) as connection:
        assert connection.execute("select count(*) from measurements").fetchone() == (3,)
    torchdynamo.reset()
    database._known.clear()
    with torch.no_grad():
        torchdynamo.compile(program, backend="ensemble")(torch.randn(8, 8))
    winner = next(name for name, row in rows.items() if row["winner"] == "True")
    assert chosen()[-1:] == [winner]
    database._known.clear()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["tune", "{empty}"], "no recorded graphs"),
        (["tune", "{graphs}", "--members", "nobody"], "no member nobody"),
        (["fine"], "python -m torchdynamo VERB"),
    ],
)
def test_bad_input_is_said(
    arguments: list[str], text: str, recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [each.format(empty=tmp_path / "empty", graphs=recorded) for each in arguments]
    assert main(given) == 2 and text in capsys.readouterr().err


def test_graph_that_cannot_be_read_costs_its_rows(recorded: Path, members: str) -> None:
    (folder,) = recorded.iterdir()
    (folder / "graph.json").write_text("{")
    (row,) = processes.run(pools.TRIAL, request(recorded, members, "work"), 100, 0).rows
    assert row.state == "crashed" and "RecordError" in row.reason and "graph.json" in row.reason


def test_speedups_are_over_eager() -> None:
    timing = Timing(0.002, 0.002, 0.002, 9)
    rows = [Row("eager", "built", timing=timing), Row("a", "built", timing=timing._replace(median=0.001, lower=0.001))]
    found = speedup_rows("g", [*rows, Row("b", "crashed", "SIGABRT")])
    assert [(row.member, row.speedup, row.winner) for row in found] == [
        ("eager", 1.0, False),
        ("a", 2.0, True),
        ("b", 0.0, False),
    ]
    assert summary({"g": rows, "h": []}).row_count == 3
    assert command.SpeedupRow._fields[:3] == ("graph", "member", "state")


def test_answers_are_read_as_they_were_written(tmp_path: Path) -> None:
    answer = TrialAnswer([Row("a", "built", timing=Timing(1.0, 0.9, 1.1, 9)), Row("b", "crashed", "why")], "key")
    answer.write(str(tmp_path / "rows.json"))
    assert TrialAnswer.read(tmp_path / "rows.json") == answer


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray: make ray installs it")
def test_builds_on_ray(recorded: Path, members: str, tmp_path: Path) -> None:
    out, home = tmp_path / "speedups.csv", tmp_path / "home"
    home.mkdir()
    before = {*Path("/tmp").glob("ray/*"), *Path("/tmp").glob("td-ray-*")}
    command = [sys.executable, "-m", "torchdynamo", "tune", str(recorded), "--ray", "local", "--import", members]
    ended = subprocess.run(
        [*command, "--members", "work,crash", "--seconds", "1", "--out", str(out)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    with out.open() as lines:
        states = {row["member"]: row["state"] for row in csv.DictReader(lines)}
    assert states == {"eager": "built", "work": "built", "crash": "crashed"}
    assert {*Path("/tmp").glob("ray/*"), *Path("/tmp").glob("td-ray-*")} == before
    assert not [each for each in home.rglob("*") if "ray" in str(each.relative_to(home))]


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="ray is installed")
def test_ray_that_is_missing_is_said(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(recorded), "--ray", "local"]) == 2 and "[ray]" in capsys.readouterr().err

"""`python -m torchdynamo run`, `explain` and `report`, on programs in files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from apart import command_in_a_fork

from torchdynamo.__main__ import main

PROGRAM = """
import pickle, sys
import torch

class Box:
    pass

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        h = self.linear(x)
        if h.sum() > 1000:
            return h
        return h * 2

net = Net()
with torch.no_grad():
    for _ in range(10):
        net(torch.ones(2, 4))
print(__name__, sys.argv[1:], type(pickle.loads(pickle.dumps(Box()))).__module__, __file__.endswith("program.py"))
if "raise" in sys.argv:
    {}["key"]
if "exit" in sys.argv:
    sys.exit(7)
"""
BREAK = PROGRAM.splitlines().index("        if h.sum() > 1000:") + 1


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def command(*arguments: object, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    where = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    line = [sys.executable, "-m", "torchdynamo", *map(str, arguments)]
    environment = {**os.environ, **where, **variables}
    return subprocess.run(line, env=environment, cwd=cwd, capture_output=True, text=True, timeout=300)


def test_a_program_runs_as_by_itself_and_its_break_is_named(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "out.json"
    done = command("run", "--backend", "eager", "--report", saved, "--fail-on", "breaks", program, "one", "--two")
    assert done.stdout == "__main__ ['one', '--two'] __main__ True\n"
    assert done.returncode == 3
    assert f"program.py:{BREAK} in forward   x1 per call of forward" in done.stderr
    assert "if h.sum() > 1000:" in done.stderr
    assert "torch.where" in done.stderr
    report = json.loads(saved.read_text())
    (row,) = report["breaks"]
    assert (row["line"], row["calls"], row["per_call"]) == (BREAK, 10, 1.0)
    assert report["totals"]["breaks"] == 1
    assert report["title"] == "program.py"

    assert main(["report", str(saved)]) == 0
    assert f"program.py:{BREAK} in forward" in capsys.readouterr().out
    assert main(["report", str(saved), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == report


def test_an_exception_and_an_exit_status_are_the_programs(program: Path) -> None:
    done = command("run", "--backend", "eager", "--quiet", program, "raise")
    plain = subprocess.run([sys.executable, str(program), "raise"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    line = ("run", "--backend", "eager", "--quiet", "--fail-on", "breaks", program, "exit")
    assert command_in_a_fork(*line).returncode == 7


def test_what_the_program_does_not_compile_is_only_watched(program: Path) -> None:
    done = command_in_a_fork("run", "--watch", "--fail-on", "breaks", program)
    assert done.returncode == 0
    assert "program.py: 0 graphs" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "nowhere.py"), "there is no file 'nowhere.py'"),
        (("run", "--backend", "inductro", __file__), "there is no backend 'inductro'"),
        (("run", "--fail-on", "graphs", __file__), "--fail-on takes breaks, recompiles, fallbacks, limits"),
        (("run", "--report", "out.txt", __file__), "a report is written to a file that ends in .json"),
        (("report", __file__), "is not JSON"),
        (("explain", "torch"), "names no object: write MODULE:NAME"),
        (("explain", "torch.nn:Linaer"), "has no attribute 'Linaer'"),
    ],
)
def test_wrong_arguments_are_told(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        status = main(arguments)
    except SystemExit as leaving:  # as argparse does
        status = int(leaving.code or 0)
    assert status == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_a_model_of_a_module_is_explained(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(PROGRAM.split("\nnet = ")[0])
    done = command_in_a_fork("explain", "models:Net", "--input", "randn(2, 4)", "--json", cwd=tmp_path)
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert [row["line"] for row in report["breaks"]] == [BREAK]
    assert report["breaks"][0]["per_call"] == 1.0


def test_a_process_leaves_its_report(tmp_path: Path, program: Path) -> None:
    saved = tmp_path / "left.json"
    text = PROGRAM.replace("net = Net()", "import torchdynamo; net = torchdynamo.compile(Net(), backend='eager')")
    program.write_text(text)
    environment = {**os.environ, "TORCHDYNAMO_REPORT": str(saved), "RANK": "3"}
    subprocess.run([sys.executable, str(program)], env=environment, check=True, capture_output=True)
    report = json.loads((tmp_path / "left.rank3.json").read_text())
    assert report["breaks"][0]["calls"] == 10
    assert not saved.exists()


SPAWNS = """
import multiprocessing, sys

class Box:
    pass

def fails():
    {}["key"]

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(type(pool.apply(Box)) is Box, sys.argv)
    fails()
"""


@pytest.mark.parametrize("how", [("work/program.py",), ("-m", "work.program")], ids=["file", "module"])
def test_processes_that_are_spawned_and_tracebacks_are_as_under_python(how: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "program.py").write_text(SPAWNS)
    done = command("run", "--backend", "eager", "--quiet", *how, "one", cwd=tmp_path)
    plain = subprocess.run([sys.executable, *how, "one"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    frames = re.sub(r'  File "[^"\n]*runpy[^"\n]*", .*\n(    .*\n)*', "", plain.stderr)  # with its source before 3.11
    assert (done.returncode, done.stdout, done.stderr) == (1, plain.stdout, frames)
    assert done.stdout.startswith("True ")


def test_a_module_that_is_not_there_is_told_as_by_python(tmp_path: Path) -> None:
    for name, run in (("nowhere", command), ("json.nowhere", command_in_a_fork)):
        done = run("run", "--quiet", "-m", name, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (1, f"{sys.executable}: No module named {name}\n")


SECRET = """
import torch, torchdynamo

@torchdynamo.compile(backend="eager")
def added(x, word):
    print("hunter1")
    return x + len(word)

for word in ("hunter2", "hunter22"):
    added(torch.ones(3), word)
"""


def test_a_saved_report_is_shown_without_the_programs_strings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(*arguments: str) -> str:
        assert main(["report", "out.json", *arguments]) == 0
        return capsys.readouterr().out

    (tmp_path / "secret.py").write_text(SECRET)
    command_in_a_fork("run", "--watch", "--quiet", "--report", "out.json", "secret.py", cwd=tmp_path)
    monkeypatch.chdir(tmp_path)
    for redact, told in (((), True), (("--redact",), False)):
        assert ("hunter2" in shown(*redact), "hunter1" in shown("--json", *redact)) == (told, told)
        shown("--to", "out.html", *redact)
    assert "hunter" not in (tmp_path / "out.html").read_text()
    assert "added" in (tmp_path / "out.html").read_text()

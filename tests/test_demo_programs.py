"""The demo's programs give eager's results, and a short run of it ends with the chart and the page."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchdynamo

FOLDER = Path(__file__).parent.parent / "demo"


@pytest.fixture(autouse=True)
def demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.mark.parametrize("name", ["decoding", "versions", "logged"])
def test_results_are_those_of_eager(name: str) -> None:
    program = importlib.import_module(name).PROGRAM
    with torch.inference_mode():
        eager = program.prepare(lambda function: function)
        compiled = program.prepare(lambda function: torchdynamo.compile(function, backend="eager", fullgraph=True))
        for _ in range(3):
            assert torch.equal(compiled(), eager())


def test_there_is_no_gain_where_the_rounds_overlap() -> None:
    outcome = importlib.import_module("contest").Outcome("", "", "call")
    outcome.rounds = {
        "eager": [1.0, 1.1, 1.2, 1.3],
        "torch.compile": [4.0, 4.0, 4.0, 4.0],
        "torchdynamo": [1.0, 1.1, 1.2, 9.0],
    }
    assert outcome.verdict("eager") == "no gain over eager"
    outcome.rounds["torchdynamo"] = [2.0, 2.0, 2.0, 9.0]
    assert outcome.verdict("torch.compile").startswith("no gain")
    outcome.rounds["torchdynamo"] = [2.0, 2.0, 2.0, 2.0]
    assert outcome.verdict("torch.compile") == "2.00x as fast as torch.compile"
    assert outcome.verdict("eager") == "no gain: 1.74x the time of eager"
    assert not outcome.gains


@pytest.mark.long
def test_a_short_run_ends_with_the_chart_and_the_page(tmp_path: Path) -> None:
    page = tmp_path / "demo.html"
    told = subprocess.run(
        [sys.executable, FOLDER / "main.py", "--rounds", "2", "--processes", "2", "--page", page]
        + ["--only", "decoding", "logged", "second_process"],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=tmp_path,
    )
    assert told.returncode == 0, told.stderr
    for line in ("One token at a time", "A network of 8 layers", "A second process", "in every round: yes", str(page)):
        assert line in told.stdout.replace("\n", ""), told.stdout
    assert sum(line.strip().startswith("torchdynamo ") for line in told.stdout.splitlines()) == 3
    assert "<html" in page.read_text()


@pytest.mark.long
def test_what_the_second_process_needs_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_CACHE", "0")  # as in the Makefile, for all that is measured
    contender = importlib.import_module("contest").Contender("torchdynamo", tmp_path, 1)
    try:
        contender.ask("prepare", "decoding")
    finally:
        contender.close()
    assert list(tmp_path.glob("torchdynamo/v1/frames/*/*.td"))

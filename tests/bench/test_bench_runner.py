"""The benchmark runner: what it measures, how it survives, what it keeps."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from torch import nn

import torchdynamo
from torchdynamo.backends.registry import discover
from torchdynamo.bench import measure, models, processes
from torchdynamo.bench.__main__ import main
from torchdynamo.bench.backends import BackendSpec
from torchdynamo.bench.measure import BenchRequest, Measured
from torchdynamo.bench.models import MODELS
from torchdynamo.bench.models.torch_nn import UNet
from torchdynamo.bench.results import ResultFile, ResultRow
from torchdynamo.bench.table import geomean
from torchdynamo.errors import TorchDynamoError

TINY = """
import os, sys, time, torch
from torchdynamo.bench.models import add
inputs = lambda batch: (torch.randn(batch, 4),)
add("tiny", lambda: torch.nn.Linear(4, 4), inputs)
add("crashing", lambda: os.abort(), inputs)
add("hanging", lambda: time.sleep(100), inputs)
add("missing", lambda: __import__("no_such_package"), inputs)
"""


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """A file with models of the tests' own."""
    path = tmp_path / "tiny.py"
    path.write_text(TINY)
    return str(path)


def request(model: str, tiny: str, **changes: object) -> BenchRequest:
    wanted = BenchRequest(model, 2, "speedup", ["eager_module", "eager"], 1, 0.0, 5, 1.0, [tiny], "cpu", "")
    return wanted._replace(**changes)  # type: ignore[arg-type]


def test_model_is_measured_in_a_process_of_its_own(tiny: str) -> None:
    found = processes.run(request("tiny", tiny), timeout=120)
    assert [each.backend for each in found] == ["eager_module", "eager"]
    assert all(0 < each.lower <= each.value <= each.upper < each.first for each in found)


@pytest.mark.parametrize(
    ("model", "timeout", "text"),
    [("crashing", 120, "ended by SIGABRT"), ("hanging", 6, "stopped after 6 s"), ("missing", 120, "not available")],
)
def test_failure_is_a_row(model: str, timeout: float, text: str, tiny: str) -> None:
    (found,) = processes.run(request(model, tiny), timeout)
    assert found.backend == "" and text in found.remark


def test_run_is_kept_and_resumed(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def run(request: BenchRequest, timeout: float) -> list[Measured]:
        asked.append(f"{request.model} {request.batch}")
        return [Measured(each, 0.002 / (1 + index), 0.001, 0.003, 1.0) for index, each in enumerate(request.backends)]

    monkeypatch.setattr(processes, "run", run)
    out = tmp_path / "found.csv"
    command = ["--import", tiny, "--only", "^tiny$", "--batch", "1,8", "--backends", "eager", "--out", str(out)]
    assert main(command) == 0 and main(command) == 0
    assert asked == ["tiny 1", "tiny 8"]
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["backend"], row["value"], row["speedup"]) for row in rows] == [
        ("eager_module", "2.0", "1.0"),
        ("eager", "1.0", "2.0"),
    ] * 2
    text = capsys.readouterr().out
    assert "geometric mean" in text and "2.00x" in text and "load" in text
    assert main([*command, "--fresh"]) == 0 and len(asked) == 4


def test_bad_input_is_said_and_nothing_is_lost(tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    command = ["--import", tiny, "--only", "^tiny$", "--out", str(other)]
    assert main(command) == 2 and "--fresh" in capsys.readouterr().err and other.read_text() == "a,b\n1,2\n"
    assert main([*command, "--backends", "induktor"]) == 2 and "inductor" in capsys.readouterr().err
    assert main([*command, "--backends", "ensemble:tune=later"]) == 2 and "online" in capsys.readouterr().err


def test_backends_are_read_with_their_options() -> None:
    spec = BackendSpec.of("ensemble:tune=now;constants=True;members=['ts']")
    assert spec.options == {"tune": "now", "constants": True, "members": ["ts"]} and spec.chooses
    with pytest.raises(ValueError, match="key=value"):
        BackendSpec.of("ensemble:tune")
    with pytest.raises(TorchDynamoError):
        BackendSpec.of("nothing")


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    kept = ResultFile(tmp_path / "a.csv", fresh=False)
    kept.add("speedup", "m", 1, 2, [Measured("eager_module", 0.5, 0.4, 0.6, 2.0, "a, b")])
    assert ResultFile(tmp_path / "a.csv", fresh=False).rows == kept.rows
    assert kept.rows == [ResultRow("speedup", "m", 1, 2, "eager_module", 500.0, 400.0, 600.0, 2000.0, 1.0, "a, b")]


def test_wrong_results_are_noted() -> None:
    right = torch.ones(3)
    assert measure.compared(right + 1e-7, right) == ""
    assert measure.compared(right + 1, right) == "differs by 1e+00; "
    assert measure.compared(torch.ones(2), right) == "differs in shape (2,); "


def test_there_are_models_of_all_kinds() -> None:
    discover(models)
    assert len(MODELS) >= 40
    assert geomean([1.0, 4.0]) == 2.0 and geomean([]) == 0.0


def test_models_of_the_runner_are_compiled() -> None:
    with torch.no_grad():
        report = torchdynamo.explain(UNet(4).eval())(torch.randn(1, 3, 16, 16))
    assert report.graph_count == 1
    assert isinstance(MODELS["mlp_small"].make(), nn.Module)

"""The scripts of examples/, run as their readers run them."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import pytest
import torch

import torchdynamo

FOLDER = Path(__file__).parent.parent / "examples"


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """What a script prints."""
    monkeypatch.syspath_prepend(str(FOLDER))
    torchdynamo.reset()
    torch.manual_seed(0)

    def run(name: str) -> str:
        runpy.run_path(str(FOLDER / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_toy_example(output) -> None:
    assert output("toy_example.py").count("my_compiler() called with FX graph:\n") == 3


def test_whole_graph(output) -> None:
    lines = output("whole_graph.py").splitlines()
    assert lines[:2] == ["generic_jump TensorVariable()", "Processing original code:"]
    carets = "       ^^^^^^^^^^^" if hasattr(CodeType, "co_positions") else "    ^^^^^^^^^^^^^^^"  # 3.10 knows the line
    assert lines[3:5] == ["    if b.sum() < 0:", carets]
    assert lines[-1] == "Reason: TD101 data-dependent-branch: python -m torchdynamo reason TD101"


def test_explain(output) -> None:
    text = output("explain.py")
    assert text.startswith("toy_example: 2 graphs, 7 operators, ")
    assert "      if b.sum() < 0:\n" in text


def test_rewriting_backend(output) -> None:
    assert output("rewriting_backend.py") == "equal to the linear layer alone: True\n"


def test_combined_backends(output) -> None:
    assert output("combined_backends.py").startswith("tensorrt declined\ncudagraphs declined\ntensor([[1., 1., 1.],")


def test_run_mode(output) -> None:
    assert [line[-1] for line in output("run_mode.py").splitlines()] == ["1", "1", "2"]


def test_frame_callback(output) -> None:
    assert output("frame_callback.py").splitlines()[1:] == [
        "area of 3 by 3",
        "area of 5 by 5",
        "[12, 9, 25, 12] and 1 entry",
    ]


def test_every_example_is_tested() -> None:
    elsewhere = {"test_kfold_training"}  # tests/training/test_training_kfold.py
    assert {f"test_{path.stem}" for path in FOLDER.glob("*.py")} <= globals().keys() | elsewhere


def test_generation(output) -> None:
    pytest.importorskip("transformers", reason="examples/requirements.txt brings it")
    lines = output("generation.py").splitlines()
    assert all("as in eager: True" in line for line in lines)
    assert lines[0].endswith("so far: 3")

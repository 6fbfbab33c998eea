"""`python -m torchdynamo export`, on a module in a file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from torchdynamo.__main__ import main

PROGRAM = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.drop, self.count = torch.nn.Linear(3, 3), torch.nn.Dropout(), 0

    def forward(self, x, mask=None):
        if x.shape[0] > 2:
            x = x * 2
        return self.drop(self.linear(x)) if mask is None else self.linear(x) * mask

class Counter(Net):
    def forward(self, x):
        self.count += 1
        return x + self.count
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "exported_net.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "exported_net", raising=False)
    return tmp_path


def test_a_model_is_written_with_what_it_rests_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--input", "ones(5, 3)", "--input", "mask=torch.zeros(3)", "--dynamic", "x:0:3:8"]
    assert main(["export", "exported_net:Net", *given, "-o", "net.pt2"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("net.pt2: ")
    assert "2 tensors of state" in first
    assert {"checked: x.size(1) == 3", "checked: x.size(0) >= 3", "checked: x.size(0) <= 8"} <= {*map(str.strip, lines)}
    module = torch.export.load(here / "net.pt2").module()
    assert torch.equal(module(torch.ones(4, 3), mask=torch.zeros(3)), torch.zeros(4, 3))
    with pytest.raises(AssertionError, match="<= 8"):
        module(torch.ones(9, 3), mask=torch.zeros(3))


def test_what_cannot_be_exported_ends_with_1(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["export", "exported_net:Counter", "--input", "ones(3)", "-o", "net.pt2"]
    assert main(arguments) == 1
    assert "self.count" in capsys.readouterr().err
    assert not (here / "net.pt2").exists()
    assert main([*arguments, "--no-strict", "--guards"]) == 0
    assert "left out: self.count is set" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_a_folder_that_is_not_there_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["export", "exported_net:Net", "--input", "torch.ones(3, 3)", "-o", "no/such/net.pt2"])
    assert "no/such" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        ["exported_net:Nothing"],
        ["exported_net"],
        ["exported_net:Net", "--input", "nope("],
        ["exported_net:Net", "--dynamic", "x"],
    ],
)
@pytest.mark.usefixtures("here")
def test_wrong_arguments_end_with_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["export", *wrong, "-o", "net.pt2"])
    assert "error" in capsys.readouterr().err

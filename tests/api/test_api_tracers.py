"""Programs that are traced, measured for coverage or profiled while they are compiled."""

from __future__ import annotations

import cProfile
import sys
import threading
from pathlib import Path
from typing import Any

import coverage
import pytest
import torch

import torchdynamo

PROGRAM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, flag):
        y = helper(x)
        if flag:
            y = y + 1
        else:
            y = y - 1
        return super().__repr__(), inner(y)


def helper(x):
    if x.shape[0] > 2:
        return x * 2
    return x * 3


def inner(y):
    try:
        return checked(y)
    except ValueError:
        return y.relu()


def checked(y):
    if y.dim() == 1:
        raise ValueError(y.dim())
    return y
"""


@pytest.fixture
def module(tmp_path: Path) -> dict[str, Any]:
    """The program, in a file of its own."""
    path = tmp_path / "measured.py"
    path.write_text(PROGRAM)
    space: dict[str, Any] = {"__name__": "measured"}
    exec(compile(PROGRAM, str(path), "exec"), space)
    return {**space, "path": str(path)}


def lines_of(module: dict[str, Any], call: Any) -> list[int]:
    """Run a call under coverage, and return the lines of the program that ran."""
    measuring = coverage.Coverage(data_file=None, config_file=False, include=[module["path"]])
    measuring.start()
    try:
        call()
    finally:
        measuring.stop()
    return sorted(measuring.get_data().lines(module["path"]) or [])


@pytest.mark.parametrize("warm", [False, True])
def test_coverage_reports_the_lines_that_eager_runs(module: dict[str, Any], warm: bool) -> None:
    model, x = module["Model"](), torch.ones(3)
    compiled = torchdynamo.compile(model, backend="eager")
    expected = lines_of(module, lambda: model(x, True))
    assert len(expected) >= 9
    if warm:
        compiled(x, True)
    assert lines_of(module, lambda: compiled(x, True)) == expected
    assert lines_of(module, lambda: compiled(x, True)) == expected
    other = lines_of(module, lambda: model(x, False))
    assert lines_of(module, lambda: compiled(x, False)) == other != expected


def test_what_comes_after_is_compiled(module: dict[str, Any]) -> None:
    compiled = torchdynamo.compile(module["Model"](), backend="eager", fullgraph=True)
    x = torch.ones(3)
    expected = lines_of(module, lambda: compiled(x, True))
    result = compiled(x, True)
    entries = torchdynamo.eval_frame.cache_entries(module["Model"].forward)
    assert len(entries) == 1
    assert lines_of(module, lambda: compiled(x, True)) == expected
    assert entries[0].hits == 1
    assert torch.equal(result[1], compiled(x, True)[1])
    assert entries[0].hits == 2


def test_a_tracer_in_one_thread_is_no_tracer_in_another(module: dict[str, Any]) -> None:
    compiled = torchdynamo.compile(module["Model"](), backend="eager")
    thread = threading.Thread(target=compiled, args=(torch.ones(3), True))
    prior = sys.gettrace()
    sys.settrace(lambda *args: None)
    try:
        thread.start()
        thread.join()
    finally:
        sys.settrace(prior)
    assert len(torchdynamo.eval_frame.cache_entries(module["Model"].forward)) == 1


def test_a_profile_is_of_what_runs(module: dict[str, Any]) -> None:
    compiled = torchdynamo.compile(module["Model"](), backend="eager")
    compiled(torch.ones(3), True)
    profile = cProfile.Profile()
    for _ in range(3):
        profile.runcall(compiled, torch.ones(3), True)
    called = {entry.code.co_name for entry in profile.getstats() if hasattr(entry.code, "co_name")}
    assert "forward" in called
    assert not called & {"helper", "checked"}

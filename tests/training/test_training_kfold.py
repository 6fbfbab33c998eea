"""The example of a whole experiment: its metrics are eager's, and Adam's update is among its graphs."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.fx

import torchdynamo

pytest.importorskip("sklearn")
EXAMPLE = Path(__file__).parents[2] / "examples" / "kfold_training.py"


def test_metrics_and_graphs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    torchdynamo.reset()
    example = runpy.run_path(str(EXAMPLE))
    graphs: list[torch.fx.GraphModule] = []

    def compiler(gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        graphs.append(gm)
        compiled: Callable[..., Any] = example["my_compiler"](gm, example_inputs)
        return compiled

    run, function = example["run"], example["train_and_evaluate"]
    expected = run(function, 3)
    metrics = run(torchdynamo.optimize(compiler)(function), 3)
    for theirs, ours in zip(expected, metrics, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)
    targets = [str(node.target) for gm in graphs for node in gm.graph.nodes]
    assert any("linear" in target for target in targets) and "addcdiv_" in targets
    assert capsys.readouterr().out.count("my_compiler() called with FX graph:") == len(graphs) <= 20
    example["draw"](*metrics[:2], str(tmp_path / "loss.png"))
    assert (tmp_path / "loss.png").stat().st_size > 1000

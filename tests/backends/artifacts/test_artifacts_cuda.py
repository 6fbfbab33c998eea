"""Graphs compiled for a GPU are called in a process that has neither Inductor nor Triton, and do the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
SCRIPT = Path(__file__).parent / "process.py"
NAMES = (
    "pointwise sizes_that_vary several_results layouts views_of_inputs inputs_that_are_written numbers_that_vary "
    "constants a_tensor_of_the_program random_numbers linear convolution attention fallbacks nothing_in_it bfloat16 "
    "a_gradient results_of_other_inputs_each a_network gradients_whose_sizes_vary gradients_in_other_layouts "
    "a_buffer_that_is_written"
).split()
RANDOM = ("random_numbers",)


def run(*arguments: str) -> Any:
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """Return by program why graphs are not stored, None for those that are; and what became of those that are."""
    folder = str(tmp_path_factory.mktemp("artifacts"))
    return run("write:cuda", folder, "inductor", *NAMES), run("read:cuda", folder)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_loaded_does_the_same(both: tuple[Any, Any], name: str) -> None:
    written, told = both
    assert written[name] and set(written[name]) == {None}
    for graph, found in told["programs"].items():
        if graph.partition(".")[0] == name:
            assert found["compiled"] == []
            assert found["eager"] == [] or name in RANDOM


def test_no_compiler_is_imported(both: tuple[Any, Any]) -> None:
    compilers = ("torch._inductor", "torch._dynamo", "torch._functorch.aot_autograd", "triton")
    assert [name for name in both[1]["imported"] if name.startswith(compilers)] == []

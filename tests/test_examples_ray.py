"""The scripts of examples/ray, each on a cluster of its own; `make ray` installs what they need."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples" / "ray"

NEEDED = ("ray", "pyarrow", "starlette")  # the last two come with ray[data,serve,train,tune]

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in NEEDED), reason="needs ray: make ray installs it"
    ),
]


@pytest.fixture
def lines(tmp_path: Path):
    """What a script prints. It may leave nothing behind, at home or among temporary files."""

    def run(name: str, *arguments: str) -> list[str]:
        home, temporary = tmp_path / "home", tmp_path / "t"
        home.mkdir()
        temporary.mkdir()
        variables = {**os.environ, "HOME": str(home), "TMPDIR": str(temporary), "PYTHONWARNINGS": "ignore"}
        before = rays_own()
        done = subprocess.run(
            [sys.executable, FOLDER / name, *arguments], env=variables, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr[-4000:]
        left = [each for place in (home, temporary) for each in place.rglob("*") if each.is_file()]
        assert left == []
        assert rays_own() == before
        return done.stdout.splitlines()

    return run


def rays_own() -> set[Path]:
    """Return where Ray, or a cluster of the examples, keeps files whatever the folder for temporary ones is."""
    return {*Path("/tmp/ray").glob("*"), *Path("/tmp").glob("td-ray-*")}


def test_train(lines) -> None:
    first, second = lines("train_ddp.py", "--epochs", "3")[-2:]
    assert first.startswith("after 3 epochs: loss 0.") and first.endswith(" ms a step")
    assert second == "graphs that a worker compiled: 1"


def test_data(lines) -> None:
    first, second = lines("data_map_batches.py")[-2:]
    assert first.startswith("1000 rows in ") and first.endswith("as in eager: True")
    assert second == "actors: 1, graphs that each compiled: 1"


def test_serve(lines) -> None:
    first, second = lines("serve_run_mode.py", "--requests", "12")[-2:]
    assert first == "graphs compiled while warming up: 2, while serving: 0"
    assert second.startswith("12 requests, as in eager: True; median ")


def test_tune(lines) -> None:
    *rows, best = lines("tune_options.py", "--backends", "aot_eager", "--calls", "50")
    assert len([row for row in rows if row.endswith("right: True")]) == 2
    assert best.startswith("best: aot_eager, dynamic=")

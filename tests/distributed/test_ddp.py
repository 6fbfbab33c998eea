"""DistributedDataParallel, compiled: results are eager's, and buckets are reduced while the backward runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

PROGRAM = Path(__file__).with_name("ddp_training.py")

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch was built without gloo"
)


def run(folder, *cases, seconds):
    """Run two ranks, and fail if they do."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, PROGRAM, str(rank), folder, *cases],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for rank in (0, 1)
    ]
    try:
        errors = [rank.communicate(timeout=seconds)[1].decode() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(errors)


def test_results_are_eagers_and_communication_begins_early(tmp_path):
    run(tmp_path, "small buckets", seconds=200)


@pytest.mark.long
def test_all_settings_and_places(tmp_path):
    run(tmp_path, seconds=1500)
